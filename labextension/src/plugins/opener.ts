/** Runs and comparisons as tabs of the main area, there again after a reload. */
import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { IStateDB } from '@jupyterlab/statedb';
import { RunTabs } from '../tabs';
import { IDistributed, IRunOpener } from '../tokens';

export const opener: JupyterFrontEndPlugin<IRunOpener> = {
  id: 'jupyter-dist:opener',
  description: 'Opens distributed runs in the main area.',
  autoStart: true,
  provides: IRunOpener,
  requires: [IDistributed, IRenderMimeRegistry],
  optional: [ILabShell, ILayoutRestorer, INotebookTracker, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    dist: IDistributed,
    rendermime: IRenderMimeRegistry,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    tracker: INotebookTracker | null,
    db: IStateDB | null
  ): IRunOpener => {
    const place = labShell ? 'main' : 'down';
    const tabs = new RunTabs(app, dist, place, tracker, rendermime, db);
    if (restorer) {
      tabs.restore(restorer);
    }
    return tabs;
  }
};
