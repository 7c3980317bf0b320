/** The few pages of a log that are kept here, of a log of any length that is kept elsewhere. */
import { SOON_MS } from './followedlog';
import type { ILogLine, ILogPage } from './source';

const PAGE = 200;
const KEPT_PAGES = 36;
/** Lines at the end that may still change: an unfinished one, or one that more ranks join. */
const UNSETTLED = 64;
/** More unfinished lines than these are only named by their ranks. */
const UNFINISHED = 8;

const SHORT_MS = 10;
/** A page that could not be read is not asked for again before. */
const AGAIN_MS = 2000;

/** A line, which may stand among others than its neighbours: `number` is its own then, and `n` its row. */
export interface IRowLine extends ILogLine {
  number?: number;
}

type Fetch = (start: number, count: number) => Promise<ILogPage>;

/** Lines by number. Missing ones are fetched when asked for; `changed` says when there are new ones. */
export class LogPages {
  total = 0;
  complete = false;
  error: string | null = null;
  private _unfinished: ILogLine[] = [];
  private readonly _pages = new Map<number, (IRowLine | undefined)[]>();
  private readonly _pending = new Set<number>();
  private readonly _stale = new Set<number>();
  /** Pages that could not be read a moment ago. Each drawing would ask for them again. */
  private readonly _failed = new Set<number>();
  private _tailing = false;
  private _tailAgain = false;
  private _closed = false;
  /** Grows when all is forgotten: what was asked for before is not wanted any more. */
  private _age = 0;
  /** How often something came unasked: what was asked for before that may be older. */
  private _came = 0;

  constructor(
    private readonly _fetch: Fetch,
    private readonly _changed: () => void
  ) {}

  /** What there is to show: the lines, and after them those that are not finished, as far as known. */
  get rows(): number {
    return this.total + this._unfinished.length;
  }

  /** A line, or an unfinished one, whose own number is negative. */
  line(n: number): IRowLine | undefined {
    if (n >= this.total) {
      return this._unfinished[n - this.total];
    }
    return this._pages.get(Math.floor(n / PAGE))?.[n % PAGE];
  }

  /** Have the lines [first, end) soon. Returns whether all are here. */
  ensure(first: number, end: number): boolean {
    let whole = true;
    for (let page = Math.floor(first / PAGE); page * PAGE < Math.min(end, this.total); page++) {
      const lines = this._pages.get(page);
      if (lines) {
        // The most recently used are the last in the map's order.
        this._pages.delete(page);
        this._pages.set(page, lines);
      }
      const last = Math.min(end, this.total, (page + 1) * PAGE) - 1;
      let missing = this._stale.has(page);
      for (let n = Math.max(first, page * PAGE); n <= last && !missing; n++) {
        missing = lines?.[n % PAGE] === undefined;
      }
      if (missing) {
        whole = false;
        if (!this._failed.has(page)) {
          void this._load(page);
        }
      }
    }
    return whole;
  }

  /** The other side said that the log has this many lines by now. */
  grown(total: number): void {
    const from = Math.max(0, Math.min(this.total, total) - UNSETTLED);
    if (total !== this.total) {
      this._unfinished = []; // some of them are lines now
    }
    this.total = total;
    for (const page of this._pages.keys()) {
      if ((page + 1) * PAGE > from) {
        this._stale.add(page);
      }
    }
    this._changed();
  }

  /** The last lines have come unasked. */
  take(page: ILogPage): void {
    this._came++;
    this._take(page, this._age, this._came);
  }

  /** Have the last lines. `live`: they come unasked, as a rule. */
  begin(count: number, live = false): void {
    const came = this._came;
    const ask = () => {
      if (this._came === came && !this._closed) {
        void this.tail(count);
      }
    };
    if (live) {
      setTimeout(ask, SOON_MS);
    } else {
      ask();
    }
  }

  /** Fetch the last lines, and with them the length. At most one such request is under way. */
  async tail(count: number): Promise<void> {
    if (this._tailing) {
      this._tailAgain = true;
      return;
    }
    this._tailing = true;
    try {
      do {
        this._tailAgain = false;
        const [age, came, began] = [this._age, this._came, performance.now()];
        this._take(await this._fetch(-count, count), age, came);
        const spent = performance.now() - began;
        if (this._tailAgain && spent > SHORT_MS) {
          // Where answers are slow, others get at least half of the time.
          await new Promise(go => setTimeout(go, spent));
        }
      } while (this._tailAgain && !this._closed);
    } catch (error) {
      this._fail(error);
    } finally {
      this._tailing = false;
    }
  }

  /** Lines [first, end) for good, a page at a time, not kept. */
  async *read(first: number, end: number): AsyncGenerator<ILogLine[]> {
    for (let at = first; at < end;) {
      const page = await this._fetch(at, Math.min(1000, end - at));
      if (!page.lines.length) {
        return;
      }
      yield page.lines;
      at += page.lines.length;
    }
  }

  /** Forget all: another attempt, or the connection was lost. */
  clear(): void {
    this._age++;
    this._pages.clear();
    this._stale.clear();
    this._failed.clear();
    this.total = 0;
    this._unfinished = [];
    this.complete = false;
  }

  close(): void {
    this._closed = true;
    this._pages.clear();
  }

  private async _load(page: number): Promise<void> {
    if (this._pending.has(page)) {
      return;
    }
    this._pending.add(page);
    this._stale.delete(page);
    const [age, came] = [this._age, this._came];
    try {
      this._take(await this._fetch(page * PAGE, PAGE), age, came);
    } catch (error) {
      if (age === this._age) {
        this._askLater(page);
      }
      this._fail(error);
    } finally {
      this._pending.delete(page);
    }
  }

  private _askLater(page: number): void {
    this._stale.add(page);
    this._failed.add(page);
    setTimeout(() => {
      if (this._failed.delete(page) && !this._closed) {
        this._changed(); // what is in sight is asked for again
      }
    }, AGAIN_MS);
  }

  private _take(answer: ILogPage, age: number, came: number): void {
    if (this._closed) {
      return;
    }
    if (age !== this._age) {
      this._changed(); // what is in sight is asked for again
      return;
    }
    this.error = null;
    const old = came !== this._came;
    if (!old) {
      this.total = Math.max(answer.total, answer.start + answer.lines.length);
      this.complete = answer.complete;
      if (answer.start + answer.lines.length >= answer.total) {
        this._unfinished = folded(answer.partial ?? []);
      }
    }
    for (const line of answer.lines) {
      const page = Math.floor(line.n / PAGE);
      let lines = this._pages.get(page);
      if (!lines) {
        lines = [];
        this._pages.set(page, lines);
      }
      if (!old || lines[line.n % PAGE] === undefined) {
        lines[line.n % PAGE] = line;
      }
    }
    for (const page of this._pages.keys()) {
      if (this._pages.size <= KEPT_PAGES) {
        break;
      }
      this._pages.delete(page);
      this._stale.delete(page);
    }
    this._changed();
  }

  private _fail(error: unknown): void {
    if (!this._closed) {
      this.error = error instanceof Error ? error.message : String(error);
      this._changed();
    }
  }
}

/** A page of some lines alone, by their numbers, as if they were a log of their own that grows no more. */
export async function pageOfLines(
  numbers: readonly number[],
  start: number,
  count: number,
  read: (numbers: readonly number[]) => Promise<ILogLine[]>
): Promise<ILogPage> {
  const first = start < 0 ? Math.max(0, numbers.length + start) : start;
  // No more than an address has room for.
  const wanted = numbers.slice(first, first + Math.min(count, PAGE));
  const found = wanted.length ? await read(wanted) : [];
  const lines = found.map((line, i) => ({ ...line, number: line.n, n: first + i }));
  return { start: first, total: numbers.length, complete: true, lines };
}

/** Equal ones as one, and of many the first. */
function folded(partial: NonNullable<ILogPage['partial']>): ILogLine[] {
  const known = new Map<string, ILogLine & { ranks: number[] }>();
  for (const { rank, time, text } of partial) {
    const key = known.size < UNFINISHED || known.has(text) ? text : '…';
    const line = known.get(key) ?? { n: -1, rank, ranks: [], time, text: key };
    line.ranks.push(...(rank === null ? [] : [rank]));
    known.set(key, line);
  }
  return [...known.values()];
}
