/** Renders a cell output that only names a run; the server has the data. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { PanelLayout, Widget } from '@lumino/widgets';
import type { IRunSource } from './run/source';
import type { Trans } from './run/trans';
import type { RunView } from './run/view';
import { IRunOpener } from './tokens';

export const RUN_MIME = 'application/x-jupyter-dist-run+json';
const SUMMARIES = ['text/html', 'text/plain'];

export interface IRendererOptions {
  makeSource: (run: string) => Promise<IRunSource>;
  trans: Trans;
  /** Renders a static summary; the host's own renderers clean the HTML. */
  createRenderer: (mimeType: string) => IRenderMime.IRenderer;
  open?: (run: string) => void;
}

export class RunRenderer extends Widget implements IRenderMime.IRenderer {
  private readonly _place = new Widget();
  private _view: RunView | null = null;
  private _summary: Widget | null = null;
  private _shown = '';

  constructor(private readonly _options: IRendererOptions) {
    super();
    this.addClass('jpd-output');
    const layout = new PanelLayout();
    layout.addWidget(this._place);
    this.layout = layout;
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const run = runOf(model.data[RUN_MIME]);
    if (run !== null && run === this._shown) {
      return; // what is new comes from the server, not with the output
    }
    this._clear();
    const { trans, makeSource, open } = this._options;
    if (run === null) {
      this._place.node.textContent = trans('This output does not name a run.');
      await this._showSummary(model);
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
      onMissing: () => void this._showSummary(model)
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
    this._summary?.dispose();
    this._summary = null;
    this._shown = '';
    this._place.node.replaceChildren();
  }

  /** What was saved with the notebook, under the reason why there is no more than that. */
  private async _showSummary(model: IRenderMime.IMimeModel): Promise<void> {
    const mimeType = SUMMARIES.find(type => model.data[type]);
    if (!mimeType || this.isDisposed || this._summary) {
      return;
    }
    const renderer = this._options.createRenderer(mimeType);
    this._summary = renderer;
    renderer.addClass('jpd-summary');
    (this.layout as PanelLayout).addWidget(renderer);
    await renderer.renderModel(model);
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
  optional: [ITranslator, IRunOpener],
  activate: (
    app: JupyterFrontEnd,
    registry: IRenderMimeRegistry,
    translator: ITranslator | null,
    opener: IRunOpener | null
  ) => {
    const bundle = (translator ?? nullTranslator).load('jupyter_dist');
    const trans: Trans = (text, ...args) => bundle.__(text, ...args.map(String));
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
          createRenderer: mimeType => registry.createRenderer(mimeType),
          open: opener ? run => opener.open(run) : undefined
        })
    });
  }
};
