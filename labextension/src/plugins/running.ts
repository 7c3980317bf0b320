/** Runs that go on: in the panel "Running", in the status bar, and a word when one has ended. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { IStatusBar } from '@jupyterlab/statusbar';
import { EndNotices } from '../endnotices';
import { StatusPill } from '../statuspill';
import { RunningRuns } from '../running';
import { readSettings } from '../settings';
import { IDistributed, IDistributedPanel, IRunOpener } from '../tokens';

export const running: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:running',
  description: 'Lists distributed runs that go on, and says when one has ended.',
  autoStart: true,
  requires: [IDistributed, IRunOpener],
  optional: [IRunningSessionManagers, IStatusBar, IDistributedPanel],
  activate: (
    _app: JupyterFrontEnd,
    dist: IDistributed,
    opener: IRunOpener,
    managers: IRunningSessionManagers | null,
    statusBar: IStatusBar | null,
    panel: IDistributedPanel | null
  ) => {
    const manager = new RunningRuns(dist, opener);
    managers?.add(manager);
    let wanted = () => true;
    void dist.settings
      ?.then(settings => {
        wanted = () => readSettings(settings).tellEnds;
      })
      .catch(() => undefined); // said by the plugin of the models
    new EndNotices({ runs: manager.model, dist, opener, wanted: () => wanted() });
    const pill = new StatusPill(manager.model, dist, () => panel?.show());
    statusBar?.registerStatusItem('jupyter-dist:pill', {
      item: pill,
      align: 'right',
      rank: 60,
      isActive: () => pill.shown,
      activeStateChanged: pill.shownChanged
    });
  }
};
