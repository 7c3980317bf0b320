/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/sessions.py: change them there. */

/** A rank that stays between cells. */
export interface ISessionRank {
  rank: number;
  pid: number | null;
  /** One of the values of `job.State`. */
  state: string;
  /** What its process has in memory, without what it shares with other processes. */
  memory_bytes: number | null;
  /** What torch had reserved on its GPUs after its last cell; null if it used none. */
  gpu_memory_bytes: number | null;
}

/** Ranks that stay between cells. Times are by the clock of `host_time`. */
export interface ISessionInfo {
  name: string;
  backend: string;
  world_size: number;
  host: string;
  /** Whether the session runs on the server's machine, which alone can act on it. */
  here: boolean;
  notebook: string | null;
  created: number;
  /** null while a cell runs. */
  idle_since: number | null;
  idle_timeout_s: number | null;
  /** The run of the cell that runs in it. */
  run: string | null;
  /** How many cells wait. */
  queued: number;
  /** The first 64. */
  ranks: ISessionRank[];
  /** The names of rank 0 with types and sizes: 100 at most. */
  names: Record<string, string>;
  host_time: number;
}

/** The session that was changed. */
export interface ISessionName {
  name: string;
}
