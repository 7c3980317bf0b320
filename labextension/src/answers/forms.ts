/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/forms.py: change them there. */
import type { ISchema as JsonSchema } from '../jsonschema';

/** How much of something there is, and how much of that nobody holds. */
export interface IAmount {
  free: number;
  total: number;
}

/** One of several things that a backend could run on, such as a cluster that it found. */
export interface ISite {
  name: string;
  /** The backend's options that lead there. */
  options: Record<string, unknown>;
  /** Why it cannot be used. */
  problem: string | null;
  /** What it has, in a line. */
  told?: string;
  nodes?: number;
  cpus?: IAmount;
  gpus?: IAmount;
  memory_bytes?: IAmount;
  gpu_types?: string[];
}

/** Fields of a form that are folded under a title. */
export interface IFormSection {
  title: string;
  fields: string[];
}

/** A backend, and what it found on this machine. */
export interface IBackend {
  name: string;
  available: boolean;
  /** What was found: versions, cores, GPUs, addresses. */
  detail: Record<string, unknown>;
  /** What to run in a terminal where its engine is missing. */
  install: string | null;
  /** A cell that does so in a notebook, where one can. */
  install_cell?: string | null;
  /** Why it cannot be used, or could not say what there is to run on. */
  problem: string | null;
  /** What there is to run on, where it finds several such. */
  sites?: ISite[];
  /** Why it finds none of these. */
  no_site?: string | null;
  /** The options that name where to run. With one of them, `no_site` does not matter. */
  places?: string[];
  capabilities?: Record<string, boolean>;
  /** Of the backend's own options; null where it cannot be loaded. */
  schema: JsonSchema | null;
  /** Of the options that every backend has. */
  run_schema: JsonSchema | null;
  /** The fields that stand open in its form. */
  first?: string[];
  /** All other fields. */
  sections?: IFormSection[];
}

/** A saved choice of a backend and options. */
export interface ICluster {
  name: string;
  backend: string;
  options: Record<string, unknown>;
  /** The file that it was launched from, where it was launched from here. */
  launched_from?: string | null;
}

/** One of the saved clusters. */
export interface IClusterRow extends ICluster {
  /** Why it cannot be used as it stands in the file. */
  problem: string | null;
}

/** The saved clusters. */
export interface IClusterList {
  clusters: IClusterRow[];
  /** The file that holds them. */
  path: string;
  /** Why that file cannot be read. */
  problem: string | null;
}

/** A cluster as it was saved. */
export interface IClusterSaved extends ICluster {
  warnings: string[];
}

/** The name of a cluster that is no more. */
export interface IClusterForgotten {
  name: string;
}

/** The run that tests a cluster. */
export interface IClusterTest {
  run_id: string;
  /** The hosts that it asks, in the order of its ranks; empty where the cluster names none. */
  hosts: string[];
}

/** The run that launches a cluster, keeps the way to it open, or takes it down. */
export interface ILaunching {
  run_id: string;
}

/** What is wrong with what a form says. */
export interface IFieldProblem {
  /** Of which field it is said; null: of several, or of none. */
  field: string | null;
  text: string;
}

/** What a form means as it stands. */
export interface IFormMeaning {
  /** The first line of a cell that means the same; null where a line cannot say it. */
  line: string | null;
  /** What has to be known of that line, or why there is none. */
  note: string | null;
  problems: IFieldProblem[];
}
