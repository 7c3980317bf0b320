/** Runs and comparisons as tabs of the main area, there again after a reload. */
import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { RunTabs } from '../tabs';
import { IDistributed, IRunOpener } from '../tokens';

export const opener: JupyterFrontEndPlugin<IRunOpener> = {
  id: 'jupyter-dist:opener',
  description: 'Opens distributed runs in the main area.',
  autoStart: true,
  provides: IRunOpener,
  requires: [IDistributed],
  optional: [ILabShell, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    dist: IDistributed,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null
  ): IRunOpener => {
    const tabs = new RunTabs(app, dist.trans, labShell ? 'main' : 'down');
    if (restorer) {
      tabs.restore(restorer);
    }
    return tabs;
  }
};
