/** Renders a cell output that only names a run; the server has the data. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { PanelLayout, Widget } from '@lumino/widgets';
import type { IRunSource } from './run/source';
import { translating, type Trans } from './run/trans';
import type { RunView } from './run/view';
import { IRunOpener } from './tokens';

export const RUN_MIME = 'application/x-jupyter-dist-run+json';
const WIDGET = 'application/vnd.jupyter.widget-view+json';
/** What stands in for a run that the server does not have: its kernel may know it, a notebook's end is saved. */
const SUMMARIES = [WIDGET, 'text/html', 'text/plain'];

export interface IRendererOptions {
  makeSource: (run: string) => Promise<IRunSource>;
  trans: Trans;
  /** Renders what stands in for the run, or null; the host's own renderers clean the HTML. */
  createRenderer: (mimeType: string, place: HTMLElement) => IRenderMime.IRenderer | null;
  open?: (run: string) => void;
}

export class RunRenderer extends Widget implements IRenderMime.IRenderer {
  private readonly _place = new Widget();
  private _view: RunView | null = null;
  private _summary: { renderer: IRenderMime.IRenderer; mimeType: string } | null = null;
  private _missing = false;
  private _model: IRenderMime.IMimeModel | null = null;
  private _shown = '';

  constructor(private readonly _options: IRendererOptions) {
    super();
    this.addClass('jpd-output');
    const layout = new PanelLayout();
    layout.addWidget(this._place);
    this.layout = layout;
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._model = model;
    const run = runOf(model.data[RUN_MIME]);
    if (run !== null && run === this._shown) {
      // What is new comes from the server, not with the output.
      return this._missing ? this._showSummary() : undefined;
    }
    this._clear();
    const { trans, makeSource, open } = this._options;
    if (run === null) {
      this._place.node.textContent = trans('This output does not name a run.');
      await this._showSummary();
      return;
    }
    this._shown = run;
    // Loaded when the first run is shown: most notebooks have none.
    const [{ RunView }, source] = await Promise.all([import('./run/view'), makeSource(run)]);
    if (this.isDisposed || this._shown !== run) {
      return;
    }
    this._view = new RunView({
      source,
      trans,
      openElsewhere: open && { label: trans('Open in a tab'), open: () => open(run) },
      onMissing: () => {
        this._missing = true;
        void this._showSummary();
      }
    });
    this._place.node.replaceChildren(this._view.node);
  }

  override dispose(): void {
    this._view?.dispose();
    this._view = null;
    super.dispose();
  }

  private _clear(): void {
    this._view?.dispose();
    this._view = null;
    this._summary?.renderer.dispose();
    this._summary = null;
    this._missing = false;
    this._shown = '';
    this._place.node.replaceChildren();
  }

  /** What came with the output, under the reason why there is no more than that. */
  private async _showSummary(): Promise<void> {
    const model = this._model;
    if (!model || this.isDisposed || this._summary?.mimeType === WIDGET) {
      return; // a widget draws itself, and each rendering would make one more
    }
    for (const mimeType of SUMMARIES.filter(type => model.data[type])) {
      if (this._summary?.mimeType !== mimeType) {
        const renderer = this._options.createRenderer(mimeType, this.node);
        if (!renderer) {
          continue;
        }
        this._summary?.renderer.dispose();
        this._summary = { renderer, mimeType };
        (this.layout as PanelLayout).addWidget(renderer);
        if (mimeType === WIDGET) {
          // The kernel has the run: nothing is missing.
          this._view?.dispose();
          this._view = null;
        } else {
          renderer.addClass('jpd-summary');
        }
      }
      return this._summary.renderer.renderModel(model);
    }
  }
}

function runOf(data: unknown): string | null {
  const run = data && typeof data === 'object' ? (data as { run?: unknown }).run : null;
  return typeof run === 'string' && run ? run : null;
}

export const renderer: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:renderer',
  description: 'Shows distributed runs under their cells.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ITranslator, IRunOpener, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    registry: IRenderMimeRegistry,
    translator: ITranslator | null,
    opener: IRunOpener | null,
    notebooks: INotebookTracker | null
  ) => {
    const bundle = (translator ?? nullTranslator).load('jupyter_dist');
    const trans = translating(bundle);
    registry.addFactory({
      safe: true,
      mimeTypes: [RUN_MIME],
      // The lowest rank wins; JupyterLab's ipywidgets renderer has 0.
      defaultRank: -10,
      createRenderer: () =>
        new RunRenderer({
          makeSource: async run => {
            const { ServerRunSource } = await import('./api');
            return new ServerRunSource(run, app.serviceManager.serverSettings);
          },
          trans,
          createRenderer: (mimeType, place) => {
            // A notebook's own registry, to which the widgets of its kernel belong.
            const notebook = notebooks?.find(panel => panel.node.contains(place));
            const known = notebook?.content.rendermime ?? registry;
            return known.getFactory(mimeType) ? known.createRenderer(mimeType) : null;
          },
          open: opener ? run => opener.open(run) : undefined
        })
    });
  }
};
