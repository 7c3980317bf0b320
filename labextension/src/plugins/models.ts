/** The state that the other plugins share, and the settings that it follows. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { PathExt } from '@jupyterlab/coreutils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { ClustersModel } from '../model/clusters';
import { HttpServer } from '../model/http';
import { NotebookChoices } from '../model/notebooks';
import { RunLists } from '../model/runlists';
import { RunsModel } from '../model/runs';
import { readSettings } from '../settings';
import { IDistributed } from '../tokens';

export const PLUGIN_ID = 'jupyter-dist:plugin';

export const models: JupyterFrontEndPlugin<IDistributed> = {
  id: PLUGIN_ID,
  description: 'Keeps the clusters, runs and settings of distributed runs.',
  autoStart: true,
  provides: IDistributed,
  optional: [INotebookTracker, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): IDistributed => {
    const trans = (translator ?? nullTranslator).load('jupyter_dist');
    const server = new HttpServer(app.serviceManager.serverSettings);
    const lists = new RunLists(server);
    const runs = new RunsModel({ server, lists, trans });
    const settings = registry?.load(PLUGIN_ID) ?? null;
    const folder = () => {
      const path = tracker?.currentWidget?.context.path;
      const { contents } = app.serviceManager;
      // The server has the folders of its own drive. Real-time collaboration calls this drive RTC.
      return path === undefined || !['', 'RTC'].includes(contents.driveName(path))
        ? null
        : `/${PathExt.dirname(contents.localPath(path))}`;
    };
    let cleaned = false;
    void settings
      ?.then(loaded => {
        const follow = () => {
          const { poll_s, keepDays } = readSettings(loaded);
          runs.interval_s = poll_s;
          if (keepDays && !cleaned) {
            cleaned = true;
            // Best effort: old runs are no reason to bother anybody.
            runs
              .clean(keepDays)
              .catch(error => console.warn('jupyter-dist: nothing cleaned', error));
          }
        };
        loaded.changed.connect(follow);
        follow();
      })
      .catch(error => console.warn('jupyter-dist: no settings', error));
    return {
      server,
      lists,
      runs,
      clusters: new ClustersModel(server, trans, folder),
      notebooks: new NotebookChoices(tracker),
      settings,
      trans
    };
  }
};
