/** Renders a cell output that only names a run; the server has the data. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { ServerConnection } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { PanelLayout, Widget } from '@lumino/widgets';
import { LastOutputs, RUN_MIME, runOf, type IOutput } from './model/lastoutputs';
import type { IBundleHost } from './run/bundles';
import type { IRunInfo, IRunSource, RunChange } from './run/source';
import { labBundles } from './bundles';
import { CellActions } from './cellactions';
import { Places } from './places';
import type { IPlaces } from './run/framelinks';
import { translating, type Trans } from './run/trans';
import type { RunView } from './run/view';
import { IRunOpener } from './tokens';

const WIDGET = 'application/vnd.jupyter.widget-view+json';
/** What stands in for a run that the server does not have, and its kernel neither: what the notebook has saved. */
const SUMMARIES = ['text/html', 'text/plain'];
/** A widget whose kernel is there has drawn by then. */
const PATIENCE_MS = 800;

export { RUN_MIME };

/** Loaded when a run is about to be shown: most notebooks have none. */
const loadView = () => import('./run/view');

/** For widgets of kernels of the same version: they need not send the view's code. */
const offerView = () =>
  Object.assign(globalThis, {
    jupyterDist: { version: VERSION, widget: async () => (await import('./widget')).default }
  });

export interface IRendererOptions {
  makeSource: (run: string) => Promise<IRunSource>;
  trans: Trans;
  /** Renders what stands in for the run, or null; the host's own renderers clean the HTML. */
  createRenderer: (mimeType: string, place: HTMLElement) => IRenderMime.IRenderer | null;
  open?: (run: string) => void;
  debug?: (run: IRunInfo) => Promise<void>;
  /** See to it that the run's end comes into this output. */
  keep?: (output: IOutput) => void;
  bundles?: IBundleHost;
  places?: IPlaces;
}

export class RunRenderer extends Widget implements IRenderMime.IRenderer {
  private readonly _place = new Widget();
  private _view: RunView | null = null;
  private _summary: { renderer: IRenderMime.IRenderer; mimeType: string } | null = null;
  private _widget: IRenderMime.IRenderer | null = null;
  private _widgetDrawn = false;
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
    try {
      await this._render(model);
    } finally {
      // Behind the view, whose first question then names the log as well.
      this._options.keep?.(model as unknown as IOutput);
    }
  }

  private async _render(model: IRenderMime.IMimeModel): Promise<void> {
    this._model = model;
    const run = runOf(model.data[RUN_MIME]);
    if (run !== null && run === this._shown) {
      // What is new comes from the server, not with the output.
      return this._missing ? this._showSummary() : undefined;
    }
    this._clear();
    const { trans, makeSource, open, debug, bundles, places } = this._options;
    if (run === null) {
      this._place.node.textContent = trans('This output does not name a run.');
      await this._showSummary();
      return;
    }
    this._shown = run;
    const [{ RunView }, source] = await Promise.all([loadView(), makeSource(run)]);
    if (this.isDisposed || this._shown !== run) {
      return;
    }
    this._view = new RunView({
      source,
      trans,
      openElsewhere: open && { label: trans('Open in a tab'), open: () => open(run) },
      openRun: open,
      debug,
      bundles,
      places,
      onMissing: () => {
        this._missing = true;
        void this._showSummary();
        return SUMMARIES.some(type => model.data[type]) ? 'summary' : null;
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
    this._widget?.dispose();
    this._widget = null;
    this._widgetDrawn = false;
    this._place.show();
    this._missing = false;
    this._shown = '';
    this._place.node.replaceChildren();
  }

  /** What came with the output, under the reason why there is no more than that.
   *
   * A widget of a kernel that has the run takes its place as soon as it has drawn something: a saved output names
   * one that may be gone for good, of which ipywidgets says "Loading widget…" without an end. */
  private async _showSummary(): Promise<void> {
    const model = this._model;
    if (!model || this.isDisposed || this._widgetDrawn) {
      return; // a widget draws itself, and each rendering would make one more
    }
    if (model.data[WIDGET] && !this._widget) {
      await this._tryWidget(model);
      if (this.isDisposed || this._widgetDrawn) {
        return;
      }
    }
    this._place.show();
    for (const mimeType of SUMMARIES.filter(type => model.data[type])) {
      if (this._summary?.mimeType !== mimeType) {
        const renderer = this._options.createRenderer(mimeType, this.node);
        if (!renderer) {
          continue;
        }
        this._summary?.renderer.dispose();
        this._summary = { renderer, mimeType };
        (this.layout as PanelLayout).addWidget(renderer);
        renderer.addClass('jpd-summary');
      }
      return this._summary.renderer.renderModel(model);
    }
  }

  /** Let the widget draw itself, out of sight; resolves when it has, or after a moment. */
  private async _tryWidget(model: IRenderMime.IMimeModel): Promise<void> {
    const widget = this._options.createRenderer(WIDGET, this.node);
    if (!widget) {
      return;
    }
    this._widget = widget;
    this._place.hide(); // not a word of a run that is missing, where its kernel shows it in a moment
    widget.addClass('jpd-not-yet');
    (this.layout as PanelLayout).addWidget(widget);
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, PATIENCE_MS);
      const look = () => {
        if (!this._widgetDrawn && widget.node.querySelector('.jpd-run')) {
          this._widgetDrawn = true;
          watch.disconnect();
          clearTimeout(timer);
          // The kernel has the run: nothing is missing.
          this._view?.dispose();
          this._view = null;
          this._summary?.renderer.dispose();
          this._summary = null;
          widget.removeClass('jpd-not-yet');
          resolve();
        }
      };
      const watch = new MutationObserver(look);
      watch.observe(widget.node, { childList: true, subtree: true });
      widget.disposed.connect(() => watch.disconnect());
      void widget.renderModel(model).then(look, () => undefined);
    });
  }
}

/** The outputs of a notebook's cells, also of those that are not drawn yet. */
function* outputsOf(panel: NotebookPanel): Iterable<IOutput> {
  for (const cell of panel.content.model?.cells ?? []) {
    const { outputs } = cell as unknown as {
      outputs?: { length: number; get(at: number): IOutput };
    };
    for (let at = 0; outputs && at < outputs.length; at++) {
      yield outputs.get(at);
    }
  }
}

/** Listen as soon as the code that does is loaded. */
function watchLater(
  settings: ServerConnection.ISettings,
  run: string,
  listener: (change: RunChange) => void
): { dispose(): void } {
  let watch: { dispose(): void } | null = null;
  let wanted = true;
  void import('./api').then(({ watcher }) => {
    watch = wanted ? watcher(settings).watch(run, listener) : null;
  });
  return {
    dispose: () => {
      wanted = false;
      watch?.dispose();
    }
  };
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
    offerView();
    const bundle = (translator ?? nullTranslator).load('jupyter_dist');
    const trans = translating(bundle);
    const settings = app.serviceManager.serverSettings;
    const lastOutputs = new LastOutputs({
      saved: async run => (await import('./api')).savedOutput(settings, run),
      watch: (run, listener) => watchLater(settings, run, listener)
    });
    const look = (_: unknown, panel: NotebookPanel) => {
      void panel.context.ready.then(() => {
        for (const output of panel.isDisposed ? [] : outputsOf(panel)) {
          lastOutputs.take(output);
        }
      });
    };
    notebooks?.forEach(panel => look(null, panel));
    notebooks?.widgetAdded.connect(look);
    NotebookActions.executionScheduled.connect((_, { cell }) => {
      if (/jupyter_dist|%%dist/.test(cell.model.sharedModel.source)) {
        void loadView();
        void import('./api');
      }
    });
    const cells = new CellActions(app, notebooks, trans);
    registry.addFactory({
      safe: true,
      mimeTypes: [RUN_MIME],
      // The lowest rank wins; JupyterLab's ipywidgets renderer has 0.
      defaultRank: -10,
      createRenderer: () =>
        new RunRenderer({
          makeSource: async run => {
            const { ServerRunSource } = await import('./api');
            return new ServerRunSource(run, settings);
          },
          trans,
          createRenderer: (mimeType, place) => {
            // A notebook's own registry, to which the widgets of its kernel belong.
            const notebook = notebooks?.find(panel => panel.node.contains(place));
            const known = notebook?.content.rendermime ?? registry;
            return known.getFactory(mimeType) ? known.createRenderer(mimeType) : null;
          },
          bundles: labBundles(registry),
          open: opener ? run => opener.open(run) : undefined,
          debug: run => cells.debug(run),
          keep: output => lastOutputs.take(output),
          places: new Places(app, notebooks)
        })
    });
  }
};
