/** What the plugins give each other. */
import { Token } from '@lumino/coreutils';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ClustersModel } from './model/clusters';
import type { NotebookChoices } from './model/notebooks';
import type { RunLists } from './model/runlists';
import type { RunsModel } from './model/runs';
import type { IServer } from './model/server';
import type { IRunSummary } from './run/source';
import type { ITarget } from './sidebar/clusters';

/** The state that all of the sidebar's parts share. */
export interface IDistributed {
  readonly server: IServer;
  /** What asks the server for lists of runs, for all parts of the page. */
  readonly lists: RunLists;
  readonly runs: RunsModel;
  readonly clusters: ClustersModel;
  readonly notebooks: NotebookChoices;
  /** null where the application keeps no settings. */
  readonly settings: Promise<ISettingRegistry.ISettings> | null;
  readonly trans: TranslationBundle;
}

export const IDistributed = new Token<IDistributed>(
  'jupyter-dist:IDistributed',
  'The clusters, the runs and the notebooks’ choices of jupyter-dist.'
);

/** The panel "Distributed". */
export interface IDistributedPanel {
  show(): void;
  /** Show the saved clusters and backends, with the focus on them. */
  showClusters(): void;
  newCluster(): void;
  compare(): void;
  /** Use a cluster for the notebook in front. */
  use(target: ITarget): Promise<void>;
  /** Insert a cell for it below the active one. */
  insert(target: ITarget): void;
}

export const IDistributedPanel = new Token<IDistributedPanel>(
  'jupyter-dist:IDistributedPanel',
  'The panel that shows clusters and distributed runs.'
);

/** Opens runs in tabs of the main area. */
export interface IRunOpener {
  /** Show a run; the tab it already has comes to the front. */
  open(id: string): void;
  /** Show all runs in a table. */
  table(): void;
  /** Show the metrics of several runs in the same charts. */
  compare(ids: readonly string[]): void;
  /** Show the menu of these runs at a place in the window. `rename` types a name where the run is shown. */
  menu(
    runs: readonly IRunSummary[],
    at: { clientX: number; clientY: number },
    rename: () => void
  ): void;
}

export const IRunOpener = new Token<IRunOpener>(
  'jupyter-dist:IRunOpener',
  'Opens distributed runs in the main area.'
);
