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

/** The mean step of one rank, in seconds. A part is null if the rank has not recorded it. */
export interface IStepsOfRank {
  rank: number;
  /** Its place among many ranks, of which only these three are told; null if all ranks are told. */
  place: 'slowest' | 'median' | 'fastest' | null;
  steps: number;
  step_s: number;
  data_s: number | null;
  /** The rest of the step. */
  compute_s: number;
  collectives_s: number | null;
  samples_per_s: number | null;
  /** The number of garbage collections. */
  gc: number;
  /** Their seconds in all. */
  gc_s: number;
}

/** Where the time of the training steps goes. The slowest rank is the one that waits least. */
export interface IStepProfile {
  attempt: number;
  ranks: IStepsOfRank[];
  /** The rank that the others wait for. A note of the run says more. */
  straggler: number | null;
  critical: boolean;
  /** The signals that a rank lacks: `steps`, `data`, `collectives`. */
  missing: string[];
}

/** A value of a metric that is no finite number. */
export interface ISpecialValue {
  step: number;
  /** NaN, Infinity or -Infinity. */
  value: string;
}

/** Values of a rank that are no finite numbers. */
export interface INotFinite {
  count: number;
  last: ISpecialValue;
  /** The step from which on all values are such; null if the last value is a finite number. */
  since: number | null;
}

/** A metric of one rank, thinned. Without points if they were not asked for. */
export interface IRankCurve {
  rank: number;
  /** How many points of the earlier answer remain. The lists begin after them. */
  keep?: number;
  steps: number[];
  /** null where the value was not a finite number. */
  values: (number | null)[];
  /** null where no time is known. */
  times: (number | null)[];
  /** How many values were logged. */
  count?: number;
  /** The first values that were no finite numbers. */
  special?: ISpecialValue[];
  /** Absent if all values are finite. */
  not_finite?: INotFinite;
  /** The rank's value at the step of the curve's `last`. */
  last?: number | null;
}

/**
 * Values of a metric at the last step that all ranks have reached. Lists show this mean as well.
 */
export interface ILastValues {
  step: number;
  mean: number;
  min: number;
  max: number;
  /** How many ranks have a value at this step. */
  ranks: number;
  /** How many ranks log the metric. */
  of: number;
}

/** What the ranks' values lie between, by step. */
export interface IBand {
  /** How many steps of the earlier answer remain. The lists begin after them, except `ranks`. */
  keep?: number;
  steps: number[];
  mean: (number | null)[];
  min: (number | null)[];
  max: (number | null)[];
  /** Mean of the ranks' times; null where no time is known. */
  times: (number | null)[];
  /** How many of the steps all ranks have reached. After these, the mean is of some ranks. */
  whole: number;
  /** For each step after `whole`: how many ranks have reached it. */
  ranks: number[];
}

/** Where the points of a later attempt begin. */
export interface IAttemptStart {
  attempt: number;
  step: number;
}

/** One metric. */
export interface ICurve {
  name: string;
  /** The ranks whose points were asked for, and those with values that are not finite. */
  ranks: IRankCurve[];
  /** null if only one rank logs the metric, unless the run has many ranks. */
  band: IBand | null;
  /** null where no value there is a finite number. */
  last?: ILastValues | null;
  /** The attempts whose points follow those of an earlier attempt. */
  attempts?: IAttemptStart[];
}

/** A rank that logs values that are no finite numbers. */
export interface IBadRank {
  rank: number;
  /** The first metric whose last value is such. */
  name: string;
  value: string;
  /** The step from which on all values are such. */
  since: number;
}

/** Metrics to draw. */
export interface ICurves {
  /** Names this answer. The next question names it in `since`. */
  version?: string;
  attempt?: number;
  /** All metrics of the run. */
  names: string[];
  /** Those that were asked for. With `since`, only those that have changed. */
  curves: ICurve[];
  bad?: IBadRank[];
  /** Why --metric finds no more. */
  problem?: string | null;
}

/** There are new metrics. */
export interface ICurvesChange {
  kind: 'curves';
  id: string;
}
