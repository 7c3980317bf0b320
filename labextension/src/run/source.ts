/** What a run view shows, and where it gets it: the server's REST API, a kernel's comm, or a test. */
import type { ILogLine, ILogPage, ISearchResult } from '../answers/logs';
import type { IContent, IDisplays, IMediaList, IMediaPage } from '../answers/media';
import type { ICurves, IStepProfile, IUsage } from '../answers/metrics';
import type { IFailureCard, IRankError, IResult, IStacks } from '../answers/ranks';
import type { Change, IRunInfo, State } from '../answers/runs';

export type { ILogLine, ILogPage, ILogTail, ISearchResult } from '../answers/logs';
export type {
  IContent,
  IDisplay,
  IDisplays,
  IExhibit,
  ILogged,
  IMediaList,
  IMediaPage,
  IMediaSeries,
  IPlace
} from '../answers/media';
export type {
  IBadRank,
  ICurve,
  ICurves,
  ILastValues,
  IRankCurve,
  IStepProfile,
  IStepsOfRank,
  IUsage
} from '../answers/metrics';
export type {
  ICell,
  IFailureCard,
  IFrame,
  IProgress,
  IRankError,
  IRankProgress,
  IResult,
  IStacks
} from '../answers/ranks';
export type { IRankInfo, IRunFile, IRunInfo, IRunSummary, State } from '../answers/runs';

/** Whether a run in this state goes on no more. */
export function ended(state: State): boolean {
  return state !== 'pending' && state !== 'running' && state !== 'unwatched';
}

/** One of the run's attempts, from 0; without it the current one. */
export type Attempt = number | null | undefined;

/** Which log: that of a rank, of a launcher (by its name), or of all ranks by time (null). */
export type LogOf = number | string | null;

export interface ISearchQuery {
  query: string;
  regex?: boolean;
  case?: boolean;
  limit?: number;
  attempt?: Attempt;
}

/** Which curves, and what is known of them already. */
export interface ICurvesQuery {
  /** The metrics whose curves are wanted; all without it. */
  names?: readonly string[];
  /** The ranks that get a line: `0-3,7`, `all`. Without it all of a few, and none of many. */
  ranks?: string;
  /** The version of what is known. */
  since?: string;
}

/** What changed, and whether the other side can be heard. */
export type RunChange = Change | { kind: 'connection'; online: boolean };

/** The ranks that wrote a line. */
export function ranksOf(line: ILogLine): number[] {
  return line.ranks ?? (line.rank === null ? [] : [line.rank]);
}

/** A log as the other side is asked for it. */
export function logQuery(of: LogOf): { rank: number | null } | { launcher: string } {
  return typeof of === 'string' ? { launcher: of } : { rank: of };
}

/** A log as tails of it are told. */
export function tailOf(of: LogOf): { rank: number | null; launcher: string | null } {
  return typeof of === 'string' ? { rank: null, launcher: of } : { rank: of, launcher: null };
}

/** What a log's file is called after the run's id. */
export function logFile(id: string, of: LogOf, attempt?: Attempt): string {
  const part = of === null ? '' : typeof of === 'string' ? `-${of}` : `-rank-${of}`;
  const earlier = typeof attempt === 'number' ? `-attempt-${attempt}` : '';
  return `${id}${part}${earlier}.log`;
}

/** What the other side is asked for bytes by. */
export function contentQuery(
  rank: number,
  { offset, bytes, hash, mime }: IContent,
  attempt?: Attempt
) {
  return { rank, offset, bytes, hash, mime, attempt };
}

/** Ends what it stands for; repeatable. */
export interface IDisposable {
  dispose(): void;
}

/** A log whose last lines come with the news of them. */
export interface ILogSubscription extends IDisposable {
  /** Whether the first lines come unasked, too. */
  readonly live: boolean;
}

/** One run. Every method may be called at any time and rejects with an Error that a person can read. */
export interface IRunSource {
  /** How the host is called, for tests and styles: `server`, `kernel`. */
  readonly kind: string;
  readonly id: string;
  run(): Promise<IRunInfo>;
  /** Lines from `start` on (negative: counted from the end). Those of all ranks are folded. */
  logPage(of: LogOf, start: number, count: number, attempt?: Attempt): Promise<ILogPage>;
  /** Lines by their numbers. */
  logLines(of: LogOf, numbers: readonly number[], attempt?: Attempt): Promise<ILogLine[]>;
  /** `signal`: aborted when nobody wants the answer any more. */
  logSearch(of: LogOf, query: ISearchQuery, signal?: AbortSignal): Promise<ISearchResult>;
  /** With `since` only what is new; CurvesReading makes it whole. */
  curves(points: number, query?: ICurvesQuery): Promise<ICurves>;
  /** What ranks take of their hosts; without it that is not told. */
  usage?(points: number): Promise<IUsage>;
  /** Where the time of the training steps goes; without it that is not told. */
  profile?(): Promise<IStepProfile>;
  errors(attempt?: Attempt): Promise<IRankError[]>;
  /** Why the run failed or was stopped; null where there is nothing to say. */
  card(attempt?: Attempt): Promise<IFailureCard | null>;
  results(): Promise<IResult[]>;
  /** What ranks show besides text; without `start` the last ones. */
  displays(page?: { start?: number; count?: number; attempt?: Attempt }): Promise<IDisplays>;
  /** What was logged besides numbers, and some steps of it by their index. */
  media(attempt?: Attempt): Promise<IMediaList>;
  mediaPage(name: string, start: number, count: number, attempt?: Attempt): Promise<IMediaPage>;
  /** The bytes that a content names, under a type of a closed list. Not to be trusted. */
  content(rank: number, content: IContent, attempt?: Attempt): Promise<Blob>;
  stacks(): Promise<IStacks>;
  /** Those that were taken so far, also of a run that has ended; nobody is asked. */
  keptStacks(): Promise<IStacks>;
  stop(kill: boolean): Promise<void>;
  /** Save a whole log as a file. */
  download(of: LogOf, attempt?: Attempt): Promise<void>;
  /** Save one of the run's files. */
  downloadFile(name: string): Promise<void>;
  watch(listener: (change: RunChange) => void): IDisposable;
  /** Have the last lines of a log come with the news of them; without it they are asked for. */
  followLog?(of: LogOf): ILogSubscription;
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
