/** The lists of runs that parts of the page show. Each list is read once for all parts, by one request at a time. */
import { Rereading } from '../run/rereading';
import { ended, type IDisposable, type IRunSummary, type State } from '../run/source';
import type { IRunPage, IServer } from './server';

export const PAGE = 100;
/** The server gives no more at a time. */
const MOST = 1000;
/** While runs change all the time: how long a list is shown before it is read again. */
const PAUSE_MS = 1000;
/** A run that begins draws its first lines before the lists are read. */
const FIRST_MS = 200;
const BACKOFF_S = 30;

export interface IRunFilter {
  text: string;
  state: State | null;
  notebook: string | null;
  /** As `IRunQuery.sort`; null: the newest first. */
  sort?: string | null;
}

export const NO_FILTER: IRunFilter = { text: '', state: null, notebook: null };

/** A part of the page that shows a list of runs. */
export interface IRunReader {
  readonly filter: IRunFilter;
  /** How many runs the part shows, if there are so many. */
  readonly wanted: number;
  /** How often the list is read again although nothing said that it changed. */
  readonly interval_s: number;
  /** Show this list. `changed`: the run whose state alone is new. */
  take(page: IRunPage, changed?: IRunSummary): void;
  /** The server gave no answer: what is shown may be old. */
  fail(error: unknown): void;
}

/** What of a list is to be read. Each value includes those before it. */
enum Due {
  nothing,
  /** The runs behind those that are known. */
  older,
  /** The first page, and the rest if a run came or went. */
  newest,
  all
}

interface IList {
  readonly filter: IRunFilter;
  page: IRunPage | null;
  due: Due;
  /** By the page's clock. */
  readAtMs: number;
  failures: number;
}

/** Reads while somebody listens: when the server reports a change, and from time to time while the page is in sight. */
export class RunLists implements IDisposable {
  private readonly _abort = new AbortController();
  private readonly _readers = new Set<IRunReader>();
  private readonly _lists = new Map<string, IList>();
  /** What is known since the last request began, which is newer than the answer to it. */
  private readonly _news = new Map<string, IRunSummary | null>();
  private readonly _watched = new Map<string, IDisposable>();
  private readonly _reported: Rereading;
  private _turn = Promise.resolve();
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly _server: Pick<IServer, 'runs' | 'watch'>) {
    const { signal } = this._abort;
    this._reported = new Rereading(async () => {
      await new Promise(go => setTimeout(go, FIRST_MS));
      if (!signal.aborted) {
        await this.refresh();
      }
      return PAUSE_MS - FIRST_MS;
    }, signal);
    document.addEventListener('visibilitychange', () => this._schedule(), { signal });
  }

  dispose(): void {
    this._abort.abort();
    this._readers.clear();
    this._settle();
  }

  /** Give a reader its list now, as far as it is known, and whenever it changes. */
  listen(reader: IRunReader): IDisposable {
    this._readers.add(reader);
    void this.fill(reader);
    return {
      dispose: () => {
        this._readers.delete(reader);
        this._settle();
      }
    };
  }

  /** Give a reader what is known of its list, and read what it wants besides. */
  fill(reader: IRunReader): Promise<void> {
    const list = this._listOf(reader);
    const { page } = list;
    if (page) {
      reader.take(page);
    }
    const enough = page && page.runs.length >= Math.min(reader.wanted, page.total);
    return this._read([list], enough ? Due.nothing : Due.older);
  }

  /** Read anew the list of a reader, or all lists. Failures are told to the readers. */
  refresh(reader?: IRunReader): Promise<void> {
    return this._read(reader ? [this._listOf(reader)] : this._lists.values(), Due.all);
  }

  /** A run has changed, or is no more (null). */
  put(id: string, run: IRunSummary | null): void {
    this._news.set(id, run);
    for (const list of this._lists.values()) {
      const { page } = list;
      if (page?.runs.some(one => one.id === id)) {
        const runs = page.runs.flatMap(one => (one.id === id ? (run ?? []) : one));
        const changed = { ...page, runs, total: page.total - (run ? 0 : 1) };
        list.page = changed;
        this._readersOf(list).forEach(reader => reader.take(changed, run ?? undefined));
        // The session of a cell that has ended is idle now.
        if (page.sessions.length && run && ended(run.state)) {
          this._reported.changed();
        }
      }
    }
    this._follow();
  }

  private _listOf({ filter }: IRunReader): IList {
    const { text, state, notebook, sort = null } = filter;
    const key = JSON.stringify([text, state, notebook, sort]);
    const known = this._lists.get(key);
    const list = known ?? {
      filter: { text, state, notebook, sort },
      page: null,
      due: Due.nothing,
      readAtMs: performance.now(),
      failures: 0
    };
    this._lists.set(key, list);
    return list;
  }

  private _readersOf(list: IList): IRunReader[] {
    return [...this._readers].filter(reader => this._listOf(reader) === list);
  }

  private _read(lists: Iterable<IList>, due: Due): Promise<void> {
    for (const list of lists) {
      list.due = Math.max(list.due, due);
    }
    return (this._turn = this._turn.then(async () => {
      for (const list of this._lists.values()) {
        if (list.due !== Due.nothing && this._readersOf(list).length) {
          await this._readList(list);
        }
      }
      this._settle();
    }));
  }

  private async _readList(list: IList): Promise<void> {
    const due = list.page ? list.due : Due.all;
    list.due = Due.nothing;
    this._news.clear();
    const wanted = () => Math.max(...this._readersOf(list).map(reader => reader.wanted));
    const ask = (limit: number, before: string | null) =>
      this._server.runs({ ...list.filter, limit: Math.min(MOST, limit), before });
    try {
      let page = list.page;
      if (!page || due !== Due.older) {
        list.readAtMs = performance.now();
        page = await ask(due === Due.newest ? PAGE : wanted(), null);
        page = due === Due.newest ? withKnown(page, list.page) : page;
      }
      while (page.runs.length < Math.min(wanted(), page.total)) {
        const last = page.runs.at(-1)?.id ?? null;
        page = withOlder(page, await ask(wanted() - page.runs.length, last));
      }
      const read = { ...page, runs: page.runs.flatMap(run => this._now(run)) };
      list.page = read;
      list.failures = 0;
      this._readersOf(list).forEach(reader => reader.take(read));
    } catch (error) {
      list.failures++;
      this._readersOf(list).forEach(reader => reader.fail(error));
    }
  }

  private _now(run: IRunSummary): IRunSummary | [] {
    const news = this._news.get(run.id);
    return news === undefined ? run : (news ?? []);
  }

  /** Forget what nobody shows, and listen and wait for the rest. */
  private _settle(): void {
    for (const [key, list] of this._lists) {
      if (!this._readersOf(list).length) {
        this._lists.delete(key);
      }
    }
    this._follow();
    this._schedule();
  }

  /** Hear of the lists, and of each run that goes on. Not before the first answer: a server without us has nothing
   * to listen to. */
  private _follow(): void {
    const pages = [...this._lists.values()].flatMap(({ page }) => page ?? []);
    const alive = pages.flatMap(({ runs }) => runs.filter(run => !ended(run.state)));
    const subjects = new Set([...(pages.length ? ['runs'] : []), ...alive.map(run => run.id)]);
    for (const [subject, watch] of this._watched) {
      if (!subjects.has(subject)) {
        this._watched.delete(subject);
        watch.dispose();
      }
    }
    for (const subject of subjects) {
      if (!this._watched.has(subject)) {
        const watch = this._server.watch(subject, change => {
          if (change.kind === 'run') {
            this.put(change.run.id, change.run);
          } else if (subject === 'runs' && ['runs', 'connection'].includes(change.kind)) {
            this._reported.changed();
          }
        });
        this._watched.set(subject, watch);
      }
    }
  }

  private _schedule(): void {
    clearTimeout(this._timer);
    const lists = [...this._lists.values()];
    const next = Math.min(...lists.map(list => this._nextMs(list)));
    if (lists.length && !document.hidden) {
      this._timer = setTimeout(() => {
        const now = performance.now();
        const late = lists.filter(list => this._nextMs(list) <= now);
        void this._read(late, Due.newest);
      }, next - performance.now());
    }
  }

  /** When a list is read again, by the page's clock: later after failures. */
  private _nextMs(list: IList): number {
    const interval_s = Math.min(...this._readersOf(list).map(reader => reader.interval_s));
    const most_s = Math.max(interval_s, BACKOFF_S);
    return list.readAtMs + 1000 * Math.min(most_s, interval_s * 2 ** list.failures);
  }
}

/** A first page, and what is known behind it if no run came or went there. */
function withKnown(page: IRunPage, known: IRunPage | null): IRunPage {
  const { runs, total } = page;
  const same = known?.total === total && known.runs[runs.length - 1]?.id === runs.at(-1)?.id;
  return same && known ? { ...page, runs: [...runs, ...known.runs.slice(runs.length)] } : page;
}

/** A page with the runs that come after it. If there is none, it is the whole list. */
function withOlder(page: IRunPage, { runs }: IRunPage): IRunPage {
  const known = new Set(page.runs.map(run => run.id));
  const fresh = runs.filter(run => !known.has(run.id));
  const all = [...page.runs, ...fresh];
  return { ...page, runs: all, total: fresh.length ? page.total : all.length };
}
