/** Runs that go on, in the panel "Running". */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { RunningRuns } from '../running';
import { IDistributed, IRunOpener } from '../tokens';

export const running: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:running',
  description: 'Lists distributed runs that go on in the running panel.',
  autoStart: true,
  requires: [IDistributed, IRunOpener],
  optional: [IRunningSessionManagers],
  activate: (
    _app: JupyterFrontEnd,
    dist: IDistributed,
    opener: IRunOpener,
    managers: IRunningSessionManagers | null
  ) => {
    managers?.add(new RunningRuns(dist, opener));
  }
};
