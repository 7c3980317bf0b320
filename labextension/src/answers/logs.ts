/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/logs.py: change them there. */

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
  /** Line indexes, ascending; when `truncated`, only the last ones. */
  hits: number[];
  truncated: boolean;
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
