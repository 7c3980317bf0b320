/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/metrics.py: change them there. */

/**
 * One of `cpu` (percent of a core), `memory` (bytes), `gpu` (percent), `gpu_memory` (bytes),
 * `net_in` and `net_out` (bytes a second, of the rank's host).
 */
export interface IUsageSeries {
  name: string;
  /** At the times of its rank; null where there was none. */
  values: (number | null)[];
}

/** What one rank took of its host, thinned. */
export interface IRankUsage {
  rank: number;
  times: number[];
  series: IUsageSeries[];
  /** When it printed or logged last. */
  last_sign: number | null;
}

/** What the ranks took of their hosts. Times are by the clock of `host_time`. */
export interface IUsage {
  attempt: number;
  host_time: number;
  ranks: IRankUsage[];
}

/** There is more to tell of what ranks take of their hosts. */
export interface IUsageChange {
  kind: 'usage';
  id: string;
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

/** There are new metrics. */
export interface ICurvesChange {
  kind: 'curves';
  id: string;
}
