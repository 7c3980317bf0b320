/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/ranks.py: change them there. */

/** One call in a traceback or in a stack. */
export interface IFrame {
  file?: string;
  label: string;
  line: number | null;
  function: string;
  source: string;
}

/** How one rank failed. */
export interface IRankError {
  rank: number;
  time?: number;
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

/** A longer text, which is folded under a card. */
export interface ICardPart {
  kind: 'reason' | 'traceback' | 'log' | 'stacks' | 'launcher' | 'rank';
  title: string;
  text: string;
}

/** What happened to a run that failed or was stopped, what to do, why and where. */
export interface IFailureCard {
  /** What happened, such as `rank 1 failed first`. */
  title: string;
  /** Host, attempt and exit code; empty if unknown. */
  about: string;
  /** The error in one line. */
  what: string;
  /** What to do about it. */
  hints: string[];
  /** Why, besides the error itself. */
  causes: string[];
  /** Where the ranks were. */
  places: string[];
  /** What became of the other ranks. */
  others: string[];
  /** Where all of it is on the disk. */
  files: string;
  parts: ICardPart[];
}

/** Ranks that are at the same place of their code. */
export interface IStackGroup {
  ranks: number[];
  frames: IFrame[];
}

/** Where the ranks are in their code. */
export interface IStacks {
  groups: IStackGroup[];
  /** Ranks that gave no stack. */
  silent: number[];
  /** Says which ranks are elsewhere than most; empty where none is. */
  hint?: string;
  /** When the newest was taken, of those that are kept. */
  time?: number;
}

/** How far a progress bar is. */
export interface IProgress {
  n: number;
  total: number | null;
  desc: string;
  /** Steps a second; null while unknown. */
  rate: number | null;
  /** What the bar says behind its count, such as a loss. */
  note?: string;
  /** What is counted, where the bar says so; `B`: bytes. */
  unit?: string;
}

/** The bar that a rank shows. */
export interface IRankProgress extends IProgress {
  rank: number;
  /** Tells apart the bars of one rank. */
  id?: number;
  /** The bars within it, outermost first. */
  inner?: IProgress[];
}

/** One value within a result. */
export interface ICell {
  /** Empty where the result is this value. */
  name: string;
  /** Of a number; null where it is not finite, which `text` names. */
  number?: number | null;
  text: string;
}

/** What the result of some ranks looks like. */
export interface IResult {
  ranks: number[];
  repr: string;
  error: string | null;
  bytes: number | null;
  /** Of a number or a text, and of a dict or a tuple of these. */
  cells?: ICell[];
  /** Of an array: its type, shape, dtype and range. */
  array?: string;
}
