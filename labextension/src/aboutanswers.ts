/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/about_answers.py: change them there. */

/** What tells a run from others of the same notebook. */
export interface IToldApart {
  /** Somebody has given it its name; else it is called by its cell. */
  named?: boolean;
  tags?: string[];
  note?: string;
  /** The small values that its cell uses; of a trial, with what it tries. */
  parameters?: Record<string, boolean | number | string>;
  /** The last value of each metric, the mean of the ranks; of metrics that ranks log alone. */
  final?: Record<string, number>;
}

/** What people say of a run. */
export interface IAbout {
  id: string;
  name: string;
  tags: string[];
  note: string;
}

/** The commit that a run's notebook was at. */
export interface IGitState {
  commit: string;
  branch: string | null;
  /** Whether files that git knows had been changed; null where git has not said it. */
  dirty: boolean | null;
  changed: string[];
}

/** What a run was started with; empty where nobody wrote it down. */
export interface IEnvironment {
  python?: string;
  platform?: string;
  /** The installed modules that its code imports. */
  used?: string[];
  packages?: Record<string, string>;
  git?: IGitState | null;
}
