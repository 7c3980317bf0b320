/** What the sidebar's models ask of the server extension. */
import type { IDisposable, IRunInfo, IRunSummary, RunChange, State } from '../run/source';

/** A JSON schema, as far as pydantic's models of options need it. */
export interface ISchema {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  metavar?: string;
  flags?: string[];
  anyOf?: ISchema[];
  allOf?: ISchema[];
  items?: ISchema;
  properties?: Record<string, ISchema>;
  additionalProperties?: boolean | ISchema;
  required?: string[];
  $ref?: string;
  $defs?: Record<string, ISchema>;
}

export interface IBackend {
  name: string;
  available: boolean;
  /** What was found: versions, cores, GPUs, addresses. */
  detail: Record<string, unknown>;
  /** What to run where its engine is missing. */
  install: string | null;
  /** Why it cannot be used, or could not say what there is to run on. */
  problem: string | null;
  /** null where it cannot be loaded. */
  schema: ISchema | null;
  run_schema: ISchema | null;
}

export interface ICluster {
  name: string;
  backend: string;
  options: Record<string, unknown>;
  /** Why it cannot be used as it stands in the file. */
  problem: string | null;
}

export interface IClusterList {
  clusters: ICluster[];
  /** The file that holds them. */
  path: string;
  /** Why that file cannot be read. */
  problem: string | null;
}

export interface IClusterData {
  backend: string;
  options: Record<string, unknown>;
}

export interface IRunQuery {
  text?: string;
  state?: State | null;
  notebook?: string | null;
  limit?: number;
  /** The id of a run: older ones than this are meant. */
  before?: string | null;
}

export interface IRunPage {
  runs: IRunSummary[];
  total: number;
  /** The notebooks of all runs, whatever was asked for. */
  notebooks: string[];
  /** The folder that the server reads. */
  root: string;
  /** Where runs are looked for, when there are none at all. */
  hint: string | null;
}

export interface ICleaned {
  removed: string[];
  freed_bytes: number;
  /** Nothing was done: it was done a short while ago, for this page or another. */
  skipped: boolean;
}

export interface IServer {
  runs(query: IRunQuery): Promise<IRunPage>;
  run(id: string): Promise<IRunInfo>;
  stop(id: string, kill: boolean): Promise<void>;
  remove(id: string): Promise<{ freed_bytes: number }>;
  diskSize(id: string): Promise<number>;
  /** Remove the runs that ended more than `days` ago. */
  clean(days: number): Promise<ICleaned>;
  backends(): Promise<IBackend[]>;
  clusters(): Promise<IClusterList>;
  saveCluster(name: string, data: IClusterData, oldName: string | null): Promise<void>;
  deleteCluster(name: string): Promise<void>;
  duplicateCluster(name: string): Promise<string>;
  testCluster(name: string): Promise<string>;
  watch(subject: string, listener: (change: RunChange) => void): IDisposable;
}
