/** What the sidebar's models ask of the server extension. */
import type {
  IBackend,
  ICluster,
  IClusterList,
  IClusterRow,
  IClusterTest,
  IFormMeaning
} from '../answers/forms';
import type { IAbout, ICleaned, IEnvironment, IRunInfo, IRunList, State } from '../answers/runs';
import type { ISchema } from '../jsonschema';
import type { IDisposable, RunChange } from '../run/source';

export type { IBackend, ICleaned, IClusterList, IClusterTest, IFormMeaning, ISchema };
export type { IClusterRow as ICluster, IRunList as IRunPage };

export type IClusterData = Omit<ICluster, 'name'>;

/** What can be done to a cluster that is launched from a file. */
export type LaunchVerb = 'up' | 'attach' | 'down';

export interface IRunQuery {
  text?: string;
  state?: State | null;
  notebook?: string | null;
  limit?: number;
  /** The id of a run: older ones than this are meant. */
  before?: string | null;
  /** `created`, `name`, `duration`, `param:NAME`, `metric:NAME`; a minus before it: the largest first. */
  sort?: string | null;
}

/** What is left out stays; an empty text takes back what was said. */
export type IAboutChange = Partial<Omit<IAbout, 'id'>>;

export interface IServer {
  runs(query: IRunQuery): Promise<IRunList>;
  run(id: string): Promise<IRunInfo>;
  stop(id: string, kill: boolean): Promise<void>;
  remove(id: string): Promise<{ freed_bytes: number }>;
  about(id: string, change: IAboutChange): Promise<IAbout>;
  environment(id: string): Promise<IEnvironment>;
  diskSize(id: string): Promise<number>;
  /** Remove the runs that ended more than `days` ago. */
  clean(days: number): Promise<ICleaned>;
  /** `folder`: that of the notebook for which there is to be a cluster. */
  backends(folder: string | null): Promise<IBackend[]>;
  /** What a form with these values means. Starts and saves nothing. */
  meaning(
    backend: string,
    options: Record<string, unknown>,
    folder: string | null
  ): Promise<IFormMeaning>;
  clusters(): Promise<IClusterList>;
  saveCluster(name: string, data: IClusterData, oldName: string | null): Promise<void>;
  deleteCluster(name: string): Promise<void>;
  duplicateCluster(name: string): Promise<string>;
  testCluster(name: string): Promise<IClusterTest>;
  /** End a session, or give its ranks fresh processes. */
  session(name: string, action: 'close' | 'restart'): Promise<void>;
  /** `file`: the cluster-launcher file, or the name of a cluster launched from one. Returns the run's id. */
  launchRay(verb: LaunchVerb, file: string): Promise<string>;
  watch(subject: string, listener: (change: RunChange) => void): IDisposable;
}
