/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/failure_answers.py: change them there. */

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
  /** What to do about it, of the first failure alone. */
  hints?: string[];
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
