/** What a run view shows, and where it gets it: the server's REST API, a kernel's comm, or a test. */

/** `unwatched`: nobody supervises the run, its ranks may go on. That is no end; `lost` is one. */
export type State =
  'pending' | 'running' | 'unwatched' | 'succeeded' | 'failed' | 'stopped' | 'lost';

/** Whether a run in this state goes on no more. */
export function ended(state: State): boolean {
  return state !== 'pending' && state !== 'running' && state !== 'unwatched';
}

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

export interface IProgress {
  n: number;
  total: number | null;
  desc: string;
  /** Steps a second; null while unknown. */
  rate: number | null;
}

/** One run as lists show it. Times are seconds since the epoch, by the clock of `host_time`. */
export interface IRunSummary {
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
  warm: boolean;
  stall: { since: number; noticed: number } | null;
  /** That of the slowest rank. */
  progress: IProgress | null;
  /** What the other side's clock said when it answered. */
  host_time: number;
  max_restarts: number;
  /** The folder that holds the run's logs. */
  path: string;
}

export interface IRunInfo extends IRunSummary {
  ranks: IRankInfo[];
  progress_by_rank: (IProgress & { rank: number })[];
  notes: string[];
  source: string;
  /** The launchers that have a log: `launcher`, or `launcher-HOST` for each host. */
  launchers?: string[];
  /** What a launcher wrote for the user, to be downloaded. */
  files?: IRunFile[];
}

export interface IRunFile {
  name: string;
  bytes: number;
}

/** One of the run's attempts, from 0; without it the current one. */
export type Attempt = number | null | undefined;

/** Which log: that of a rank, of a launcher (by its name), or of all ranks by time (null). */
export type LogOf = number | string | null;

export interface ILogLine {
  /** Index in this view of the log, from 0. */
  n: number;
  /** null for a launcher's line. */
  rank: number | null;
  /** The ranks that wrote this line, folded; only where all ranks are shown. */
  ranks?: number[];
  time: number;
  text: string;
}

export interface ILogPage {
  start: number;
  total: number;
  /** Whether the log grows no more. */
  complete: boolean;
  lines: ILogLine[];
  /** Where the page reaches the end: the last lines that are not finished, such as progress bars. */
  partial?: Omit<ILogLine, 'n'>[];
}

export interface ISearchResult {
  count: number;
  /** Line indexes, ascending; fewer than `count` when `truncated`. */
  hits: number[];
  truncated: boolean;
}

export interface ISearchQuery {
  query: string;
  regex?: boolean;
  case?: boolean;
  limit?: number;
  attempt?: Attempt;
}

export interface IRankCurve {
  rank: number;
  steps: number[];
  /** null where the value was not a finite number. */
  values: (number | null)[];
  times: number[];
  /** The first values that were no finite numbers, with their names: NaN, Infinity, -Infinity. */
  special?: { step: number; value: string }[];
}

export interface ICurve {
  name: string;
  ranks: IRankCurve[];
  band: {
    steps: number[];
    mean: (number | null)[];
    min: (number | null)[];
    max: (number | null)[];
  } | null;
}

export interface ICurves {
  names: string[];
  curves: ICurve[];
  /** Why --metric finds no more. */
  problem?: string | null;
}

export interface IFrame {
  label: string;
  file?: string;
  line: number | null;
  function: string;
  source: string;
}

export interface IRankError {
  rank: number;
  kind: 'exception' | 'exit' | 'signal' | 'lost';
  type: string;
  message: string;
  text: string;
  frames: IFrame[];
  exit_code: number | null;
  signal_name: string | null;
  peak_memory_bytes: number | null;
  /** Whether it failed because another rank did. */
  collateral: boolean;
  host: string | null;
}

export interface IResult {
  ranks: number[];
  repr: string;
  error: string | null;
  bytes: number | null;
}

export interface IStacks {
  groups: { ranks: number[]; frames: IFrame[] }[];
  /** Ranks that gave no stack. */
  silent: number[];
}

/** What changed. `log.ranks`, `log.launchers` and `log.all` are numbers of lines. */
export type RunChange =
  | { kind: 'run'; run: IRunInfo }
  | {
      kind: 'log';
      id: string;
      ranks: Record<string, number>;
      launchers?: Record<string, number>;
      all: number;
    }
  | { kind: 'curves'; id: string }
  | { kind: 'gone'; id: string }
  | { kind: 'runs' }
  | { kind: 'connection'; online: boolean };

/** The ranks that wrote a line. */
export function ranksOf(line: ILogLine): number[] {
  return line.ranks ?? (line.rank === null ? [] : [line.rank]);
}

/** A log as the other side is asked for it. */
export function asked(of: LogOf): { rank: number | null } | { launcher: string } {
  return typeof of === 'string' ? { launcher: of } : { rank: of };
}

/** What a log's file is called after the run's id. */
export function logFile(id: string, of: LogOf, attempt?: Attempt): string {
  const part = of === null ? '' : typeof of === 'string' ? `-${of}` : `-rank-${of}`;
  const earlier = typeof attempt === 'number' ? `-attempt-${attempt + 1}` : '';
  return `${id}${part}${earlier}.log`;
}

/** Ends what it stands for; repeatable. */
export interface IDisposable {
  dispose(): void;
}

/** One run. Every method may be called at any time and rejects with an Error that a person can read. */
export interface IRunSource {
  /** How the host is called, for tests and styles: `server`, `kernel`. */
  readonly kind: string;
  readonly id: string;
  run(): Promise<IRunInfo>;
  /** Lines from `start` on (negative: counted from the end). Those of all ranks are folded. */
  logPage(of: LogOf, start: number, count: number, attempt?: Attempt): Promise<ILogPage>;
  logSearch(of: LogOf, query: ISearchQuery): Promise<ISearchResult>;
  curves(points: number): Promise<ICurves>;
  errors(attempt?: Attempt): Promise<IRankError[]>;
  results(): Promise<IResult[]>;
  stacks(): Promise<IStacks>;
  stop(kill: boolean): Promise<void>;
  /** Save a whole log as a file. */
  download(of: LogOf, attempt?: Attempt): Promise<void>;
  /** Save one of the run's files. */
  downloadFile(name: string): Promise<void>;
  watch(listener: (change: RunChange) => void): IDisposable;
}

/** The run is not where it was looked for. `root` is the folder that was searched, where known. */
export class RunMissing extends Error {
  constructor(
    message: string,
    readonly root: string | null = null
  ) {
    super(message);
    this.name = 'RunMissing';
  }
}
