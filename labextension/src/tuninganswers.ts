/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/tuning_answers.py: change them there. */

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
