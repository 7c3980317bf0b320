/** The shapes of the server's and the kernel's answers.
 *
 * Written by tools/answers.py from jupyter_dist/queries/answers/media.py: change them there. */

/** One MIME type of what is shown. All of it comes from a rank: nothing in it is to be trusted. */
export interface IContent {
  mime: string;
  /** All of it, where it is text and small. */
  text?: string;
  /** All of it, where it is JSON and small. */
  json?: unknown;
  /** Else where it is: with `bytes` and `hash` what `content` is asked for. */
  offset?: number;
  bytes?: number;
  hash?: string;
  /** All of it, where a notebook's file keeps it. */
  base64?: string;
  /** It never came, as its rank or its host was lost before. */
  lost?: boolean;
}

/** What some ranks show, all of them the same. */
export interface IExhibit {
  /** The first of them is whom `content` is asked for. */
  ranks: number[];
  time: number;
  contents: IContent[];
  /** By MIME type: how to draw it, such as a width. */
  metadata: Record<string, unknown>;
}

/** Where in the logs what a rank shows stands. */
export interface IPlace {
  rank: number;
  /**
   * In the rank's own log: the first of the lines that say in text what is shown, or the one before
   * it.
   */
  line: number;
  /** So many say it in text; 0: the line says something else, and what is shown stands below it. */
  lines: number;
  /** The same in the log of all ranks. */
  row: number;
  rows: number;
}

/** What the ranks show at one place of the cell. */
export interface IDisplay {
  /** Stays the same while the run goes on. */
  key: string;
  /** Of the cell; null where it is not known. */
  line: number | null;
  /** It is what the last expression gave. */
  result: boolean;
  /** Ranks that show the same are together. */
  exhibits: IExhibit[];
  /** Ranks that are left out, as too many differ. */
  more_ranks: number;
  /** In the logs, rank by rank, as far as they are known; none for a result. */
  places?: IPlace[];
}

/** A page of what the ranks show now. */
export interface IDisplays {
  attempt: number;
  /** Grows with each change. */
  version: number;
  start: number;
  total: number;
  displays: IDisplay[];
}

/** What was logged under one name, step by step. */
export interface IMediaSeries {
  name: string;
  type: 'image' | 'text' | 'table' | 'histogram';
  /** How many steps there are. */
  count: number;
  first_step: number;
  last_step: number;
  ranks: number[];
}

/** What was logged besides numbers. */
export interface IMediaList {
  attempt: number;
  version: number;
  series: IMediaSeries[];
}

/** What the ranks logged at one step. */
export interface ILogged {
  step: number;
  exhibits: IExhibit[];
  more_ranks: number;
}

/** Some steps of a series, in their order. */
export interface IMediaPage {
  name: string;
  start: number;
  total: number;
  steps: ILogged[];
}

/** What was logged besides numbers, for where nobody can be asked: of each name the last step. */
export interface IKeptMedia {
  list: IMediaList;
  pages: IMediaPage[];
}

/** Ranks show something new, or have logged more than numbers. */
export interface IDisplaysChange {
  kind: 'displays';
  id: string;
  version: number;
}
