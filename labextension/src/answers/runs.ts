/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/runs.py: change them there. */
import type { ILogChange, ILogPage } from './logs';
import type { IDisplays, IDisplaysChange, IKeptMedia } from './media';
import type { ICurves, ICurvesChange, IStepProfile, IUsageChange } from './metrics';
import type { IFailureCard, IProgress, IRankError, IRankProgress, IResult, IStacks } from './ranks';
import type { ISessionInfo } from './sessions';

export type State =
  | 'pending'
  | 'running'
  | 'unwatched'
  | 'succeeded'
  | 'failed'
  | 'stopped'
  | 'lost';

/** What tells a run from others of the same notebook. */
export interface IToldApart {
  /** Somebody has given it its name; else it is called by its cell. */
  named?: boolean;
  tags?: string[];
  note?: string;
  /** The small values that its cell uses; of a trial, with what it tries. */
  parameters?: Record<string, boolean | number | string>;
  /** By metric: the mean of all ranks at the last step that all have reached. */
  final?: Record<string, number>;
  /** By metric: the lowest and the highest value of all ranks and steps. */
  extremes?: Record<string, number[]>;
}

/** No rank prints or logs any more. */
export interface IStall {
  since: number;
  noticed: number;
}

/** How one rank of the current attempt stands. */
export interface IRankInfo {
  rank: number;
  state: State;
  pid: number | null;
  host: string | null;
  local_rank: number;
  exit_code: number | null;
  signal_name: string | null;
  started: number | null;
  ended: number | null;
  peak_memory_bytes: number | null;
}

/** One run as lists show it. Times are by the clock of `host_time`. */
export interface IRunSummary extends IToldApart {
  id: string;
  name: string;
  backend: string;
  world_size: number;
  state: State;
  attempt: number;
  created: number;
  started: number | null;
  ended: number | null;
  reason: string | null;
  notebook: string | null;
  label: string;
  /** The saved cluster that was chosen for it. */
  cluster?: string | null;
  warm: boolean;
  stall: IStall | null;
  /** The ranks that wait for their user, in a debugger or in `input()`. Missing if none waits. */
  waiting?: number[];
  /** That of the slowest rank. */
  progress: IProgress | null;
  /** What the other side's clock said when it answered. */
  host_time: number;
  max_restarts: number;
  /** The folder that holds the run's logs. */
  path: string;
}

/** A file for the user, such as a timeline of a launcher or a trace, to be downloaded. */
export interface IRunFile {
  name: string;
  bytes: number;
}

/** All there is to say about a run but its logs, metrics and results. */
export interface IRunInfo extends IRunSummary {
  ranks: IRankInfo[];
  progress_by_rank: IRankProgress[];
  notes: string[];
  source: string;
  attempts?: number[];
  /** The launchers that have a log: `launcher`, or `launcher-HOST` for each host. */
  launchers?: string[];
  /** Of a tuning run, which has no ranks. */
  tuning?: ITuning;
  /** Of a trial. */
  trial?: ITrialOf;
  files?: IRunFile[];
  /**
   * The flags that its cell was started with, as they were typed, without what may be secret; null
   * where no cell was run but a function or a script.
   */
  line?: string | null;
}

/** A page of the list of runs, newest first. */
export interface IRunList {
  runs: IRunSummary[];
  /** How many runs fit, on this page or another. */
  total: number;
  /** The notebooks of all runs, whatever was asked for. */
  notebooks: string[];
  /** The folder that the server reads. */
  root: string;
  /** The machine whose clock and folders are meant. */
  host?: string;
  /** Where runs are looked for, when there are none at all. */
  hint: string | null;
  sessions: ISessionInfo[];
}

/** What a run takes on the disk. */
export interface IDiskSize {
  id: string;
  bytes: number;
}

/** The state of a run just after it was asked to end. */
export interface IStopped {
  id: string;
  state: State;
}

/** A run that is no more. */
export interface IRemoved {
  id: string;
  freed_bytes: number;
}

/** The runs that were removed because they are old. */
export interface ICleaned {
  removed: string[];
  freed_bytes: number;
  /** Nothing was done: it was done a short while ago, for this page or another. */
  skipped?: boolean;
}

/** What a saved notebook shows of a run. */
export interface ISavedOutput {
  id: string;
  /** Whether it stays as it is. */
  ended: boolean;
  html: string;
  text: string;
}

/** How a run stands has changed. */
export interface IRunChanged {
  kind: 'run';
  run: IRunInfo;
}

/** A run was removed. */
export interface IGone {
  kind: 'gone';
  id: string;
}

/** The list of runs has changed. */
export interface IRunsChange {
  kind: 'runs';
}

/** A run in one value of bounded size, for where nobody can be asked. */
export interface ISnapshot {
  /** The run has ended, and nothing more will come. */
  final: boolean;
  /** It was made while the kernel could not be asked. */
  told?: boolean;
  run: IRunInfo;
  /** The last lines of all ranks. */
  log: ILogPage;
  /** How many lines each rank has. */
  totals: Record<string, number>;
  curves: ICurves;
  /** Of a run whose ranks have recorded steps. */
  profile?: IStepProfile;
  errors: IRankError[];
  /** Of a run that failed or was stopped. */
  card?: IFailureCard;
  results: IResult[];
  /** Those that were taken while it ran. */
  stacks?: IStacks;
  /** What the ranks show, of a run that has ended: with its bytes, as far as there is room. */
  displays?: IDisplays;
  /** In the same way the last that they have logged besides numbers. */
  media?: IKeptMedia;
}

/** What people say of a run. */
export interface IAbout {
  id: string;
  name: string;
  tags: string[];
  note: string;
}

/** The commit that a run's notebook was at. */
export interface IGitState {
  commit: string;
  branch: string | null;
  /** Whether files that git knows had been changed; null where git has not said it. */
  dirty: boolean | null;
  changed: string[];
}

/** What a run was started with; empty where nobody wrote it down. */
export interface IEnvironment {
  python?: string;
  platform?: string;
  /** The installed modules that its code imports. */
  used?: string[];
  packages?: Record<string, string>;
  git?: IGitState | null;
}

/** One dimension of what a tuning run tries. */
export interface IParameter {
  name: string;
  kind: 'real' | 'whole' | 'choice';
  /** null for a choice. */
  low: number | null;
  high: number | null;
  log: boolean;
  /** What there is to choose from; empty for a range. */
  values: unknown[];
}

/** The checkpoint from which a trial continues. */
export interface ITrialSource {
  trial: number;
  /** The number of values of the objective until then. */
  values: number;
}

/** One trial of a tuning run, which is a run of its own. */
export interface ITrialInfo {
  number: number;
  /** Of its run. */
  id: string;
  /** running, succeeded, pruned, failed or stopped. */
  state: string;
  /** Of the objective; there only where the trial has succeeded. */
  value: number | null;
  parameters: Record<string, unknown>;
  reason: string | null;
  started: number;
  ended: number | null;
  /** Of a trial that continues from another one. */
  source?: ITrialSource;
}

/** One number of ranks, measured or projected. */
export interface IScalingRow {
  /** The run that was measured; null for a projection. */
  id: string | null;
  ranks: number;
  throughput: number;
  /** Against the smallest size. */
  speedup: number;
  efficiency: number;
  low: number;
  /** The range of the efficiency: of eight of ten steps, or what two laws say. */
  high: number;
  /** data, compute, communication, straggler or unknown; empty for a projection. */
  limit: string;
  why: string;
  projected: boolean;
  /** The list price, if the backend knows it. */
  usd_per_hour: number | null;
  /** The price of a million samples or steps. */
  usd_per_million: number | null;
}

/** A law that was fitted to the measured sizes. */
export interface IScalingLaw {
  name: string;
  /** The part of the work that more ranks do not speed up. */
  serial: number;
  /** The mean relative error; null if two sizes fit exactly. */
  error: number | null;
}

/** How a cell scales, so far. */
export interface IScaling {
  unit: 'samples/s' | 'steps/s';
  rows: IScalingRow[];
  laws: IScalingLaw[];
  /** The law that the projection follows. */
  best: string | null;
}

/** What a tuning run looks for, and what it has tried. */
export interface ITuning {
  metric: string;
  goal: 'max' | 'min';
  strategy: string;
  max_jobs: number;
  parallel: number;
  parameters: IParameter[];
  trials: ITrialInfo[];
  /** The number of the best trial so far. */
  best: number | null;
  /** Of a run with --scaling, whose trials are numbers of ranks. */
  scaling?: IScaling;
  /**
   * How much of the differences between trials each parameter explains; empty while nobody can
   * tell.
   */
  importance: Record<string, number>;
}

/** What a run is that is a trial. */
export interface ITrialOf {
  /** The tuning run's id. */
  of: string;
  number: number;
  parameters: Record<string, unknown>;
}

/** What a watch tells. */
export type Change =
  | IRunChanged
  | ILogChange
  | ICurvesChange
  | IDisplaysChange
  | IUsageChange
  | IGone
  | IRunsChange;
