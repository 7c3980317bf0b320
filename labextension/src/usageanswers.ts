/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/usage_answers.py: change them there. */

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
