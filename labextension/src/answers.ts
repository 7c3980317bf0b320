/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers.py: change them there. */
import type { IToldApart } from './aboutanswers';
import type { IRankError, IStacks } from './failureanswers';
import type { IDisplays, IDisplaysChange, IKeptMedia } from './mediaanswers';
import type { IProgress, IRankProgress, IResult } from './saidanswers';
import type { ITrialOf, ITuning } from './tuninganswers';
import type { IUsageChange } from './usageanswers';

export type State =
  | 'pending'
  | 'running'
  | 'unwatched'
  | 'succeeded'
  | 'failed'
  | 'stopped'
  | 'lost';

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
  /** That of the slowest rank. */
  progress: IProgress | null;
  /** What the other side's clock said when it answered. */
  host_time: number;
  max_restarts: number;
  /** The folder that holds the run's logs. */
  path: string;
}

/** A file that a launcher wrote for the user, to be downloaded. */
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

/** The last line of a log, which has no newline yet, such as a progress bar. */
export interface IPartialLine {
  rank: number | null;
  time: number;
  text: string;
  cut?: boolean;
}

/** One line of a log. */
export interface ILogLine {
  /** Index in this view of the log, from 0. */
  n: number;
  /** null for a launcher's line. */
  rank: number | null;
  /** The ranks that wrote this line, folded; only where all ranks are shown. */
  ranks?: number[];
  time: number;
  text: string;
  /** A part of the line was left out because it is very long. */
  cut?: boolean;
}

/** Lines of a log, one after the other. */
export interface ILogPage {
  attempt?: number;
  start: number;
  total: number;
  /** Rows before this one are final; later ones may still gain `ranks`, nothing else. */
  settled?: number;
  /** Whether the log grows no more. */
  complete: boolean;
  lines: ILogLine[];
  /**
   * Where the page reaches the end: the last lines that are not finished, such as progress bars.
   */
  partial?: IPartialLine[];
}

/** Which lines of a log hold what was searched for. */
export interface ISearchResult {
  count: number;
  /** Line indexes, ascending; fewer than `count` when `truncated`. */
  hits: number[];
  truncated: boolean;
}

/** A value of a metric that is no finite number. */
export interface ISpecialValue {
  step: number;
  /** NaN, Infinity or -Infinity. */
  value: string;
}

/** A metric of one rank, thinned. */
export interface IRankCurve {
  rank: number;
  steps: number[];
  /** null where the value was not a finite number. */
  values: (number | null)[];
  /** null where no time is known. */
  times: (number | null)[];
  /** How many values were logged. */
  count?: number;
  /** The first values that were no finite numbers. */
  special?: ISpecialValue[];
}

/** What the ranks' values lie between, by step. */
export interface IBand {
  steps: number[];
  mean: (number | null)[];
  min: (number | null)[];
  max: (number | null)[];
}

/** One metric. */
export interface ICurve {
  name: string;
  ranks: IRankCurve[];
  /** Where ranks are too many to be told apart. */
  band: IBand | null;
}

/** Metrics to draw. */
export interface ICurves {
  /** Names this answer, for the next question. */
  version?: string;
  attempt?: number;
  names: string[];
  curves: ICurve[];
  /** Why --metric finds no more. */
  problem?: string | null;
}

/** The answer of that version still holds. */
export interface ICurvesUnchanged {
  version: string;
  unchanged: true;
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

/** What is new among the last lines of a log that a page reads along. */
export interface ILogTail {
  /** Null for the log of all ranks, and for that of a launcher. */
  rank: number | null;
  launcher: string | null;
  page: ILogPage;
}

/** A log has grown; `ranks`, `launchers` and `all` are numbers of lines. */
export interface ILogChange {
  kind: 'log';
  id: string;
  attempt?: number;
  ranks: Record<string, number>;
  launchers?: Record<string, number>;
  all: number;
  complete?: boolean;
  /** Of the logs that the page reads along; what is left out has to be asked for. */
  tails?: ILogTail[];
  /** Comes with `tails`: the page says when it has got this one. */
  push?: number;
}

/** There are new metrics. */
export interface ICurvesChange {
  kind: 'curves';
  id: string;
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
  errors: IRankError[];
  results: IResult[];
  /** Those that were taken while it ran. */
  stacks?: IStacks;
  /** What the ranks show, of a run that has ended: with its bytes, as far as there is room. */
  displays?: IDisplays;
  /** In the same way the last that they have logged besides numbers. */
  media?: IKeptMedia;
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
