/** Renders a cell output that only names a run; the server has the data. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { ServerConnection } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { ServerRunSource } from './api';
import { RunView } from './run/view';
import type { Trans } from './run/trans';

export const RUN_MIME = 'application/x-jupyter-dist-run+json';

export class RunRenderer extends Widget implements IRenderMime.IRenderer {
  private _view: RunView | null = null;

  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private readonly _trans: Trans
  ) {
    super();
    this.addClass('jpd-output');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const { run } = model.data[RUN_MIME] as { run: string };
    this._view?.dispose();
    this._view = new RunView({
      source: new ServerRunSource(run, this._settings),
      trans: this._trans
    });
    this.node.appendChild(this._view.node);
  }

  override dispose(): void {
    this._view?.dispose();
    super.dispose();
  }
}

export const renderer: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:renderer',
  description: 'Shows distributed runs under their cells.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    registry: IRenderMimeRegistry,
    translator: ITranslator | null
  ) => {
    const bundle = (translator ?? nullTranslator).load('jupyter_dist');
    const trans: Trans = (text, ...args) => bundle.__(text, ...args.map(String));
    registry.addFactory({
      safe: true,
      mimeTypes: [RUN_MIME],
      // The lowest rank wins; JupyterLab's ipywidgets renderer has 0.
      defaultRank: -10,
      createRenderer: () => new RunRenderer(app.serviceManager.serverSettings, trans)
    });
  }
};
