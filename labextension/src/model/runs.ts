/** The runs that a list shows: pages of them, their live state, and what can be done with them. */
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { type ISignal, Signal } from '@lumino/signaling';
import type { ISessionInfo } from '../answers/sessions';
import { ended, type IRunSummary, type State } from '../run/source';
import type { TranslationBundle } from '@jupyterlab/translation';
import { explain } from './explain';
import type { ICleaned, IServer } from './server';

const PAGE = 100;
const BACKOFF_MS = 30_000;

export interface IRunFilter {
  text: string;
  state: State | null;
  notebook: string | null;
  /** As `IRunQuery.sort`; null: the newest first. */
  sort?: string | null;
}

export const NO_FILTER: IRunFilter = { text: '', state: null, notebook: null };

export interface IRunsModelOptions {
  server: IServer;
  trans: TranslationBundle;
  /** How often the list is read again although nothing said that it changed. */
  interval_s?: number;
}

/** A list of runs, newest first. It reads and listens only while `active`. */
export class RunsModel implements IDisposable {
  private readonly _server: IServer;
  private readonly _trans: TranslationBundle;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _watched = new Map<string, { dispose(): void }>();
  private readonly _stopping = new Set<string>();
  private _runs: readonly IRunSummary[] = [];
  private _sessions: readonly ISessionInfo[] = [];
  private _selected: readonly string[] = [];
  private _filter: IRunFilter = NO_FILTER;
  private _total = 0;
  private _root: string | null = null;
  private _hint: string | null = null;
  private _notebooks: readonly string[] = [];
  private _problem: string | null = null;
  private _loaded = false;
  private _active = false;
  /** Counts queries: an answer to an earlier one than the latest is dropped. */
  private _asked = 0;
  private _more: Promise<void> | null = null;
  private _disposed = false;

  constructor(options: IRunsModelOptions) {
    this._server = options.server;
    this._trans = options.trans;
    this._poll = new Poll({
      auto: false,
      factory: () => this._read(),
      frequency: {
        interval: (options.interval_s ?? 10) * 1000,
        backoff: true,
        max: BACKOFF_MS
      },
      standby: 'when-hidden'
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get runs(): readonly IRunSummary[] {
    return this._runs;
  }

  /** Ranks that stay between cells, by name. */
  get sessions(): readonly ISessionInfo[] {
    return this._sessions;
  }

  /** How many runs pass the filter, loaded or not. */
  get total(): number {
    return this._total;
  }

  get root(): string | null {
    return this._root;
  }

  /** Where the server looks, when there are no runs at all. */
  get hint(): string | null {
    return this._hint;
  }

  /** Why the list may be old or empty, in one sentence. */
  get problem(): string | null {
    return this._problem;
  }

  /** Whether the server has answered for this filter. */
  get loaded(): boolean {
    return this._loaded;
  }

  get filter(): IRunFilter {
    return this._filter;
  }

  get filtered(): boolean {
    const { text, state, notebook } = this._filter;
    return Boolean(text || state || notebook);
  }

  /** The notebooks of all runs, and the one that is filtered by. */
  get notebooks(): string[] {
    const { notebook } = this._filter;
    return [...new Set([...this._notebooks, ...(notebook ? [notebook] : [])])].sort();
  }

  /** Ids in the order in which they were chosen. */
  get selected(): readonly string[] {
    return this._selected;
  }

  get active(): boolean {
    return this._active;
  }

  set active(active: boolean) {
    if (active === this._active || this._disposed) {
      return;
    }
    this._active = active;
    if (active) {
      // Not before the first answer: a server without us has nothing to listen to.
      if (this._loaded) {
        this._follow();
      }
      void this._poll.start();
    } else {
      void this._poll.stop();
      this._unwatch(() => false);
    }
  }

  set interval_s(seconds: number) {
    this._poll.frequency = { ...this._poll.frequency, interval: seconds * 1000 };
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    this._active = false;
    this._poll.dispose();
    this._unwatch(() => false);
    Signal.clearData(this);
  }

  find(id: string): IRunSummary | undefined {
    return this._runs.find(run => run.id === id);
  }

  /** Whether a stop was asked for and the run goes on. */
  isStopping(id: string): boolean {
    return this._stopping.has(id);
  }

  setFilter(change: Partial<IRunFilter>): Promise<void> {
    this._filter = { ...this._filter, ...change };
    this._changed.emit();
    return this.refresh();
  }

  toggleSelected(id: string): void {
    this._selected = this._selected.includes(id)
      ? this._selected.filter(other => other !== id)
      : [...this._selected, id];
    this._changed.emit();
  }

  clearSelected(): void {
    this._selected = [];
    this._changed.emit();
  }

  /** Read anew as many runs as are loaded. Failures end in `problem`. */
  async refresh(): Promise<void> {
    await this._read().catch(() => undefined);
  }

  /** Load the next older runs, if there are any. */
  more(): Promise<void> {
    this._more ??= this._older().finally(() => {
      this._more = null;
    });
    return this._more;
  }

  /** Ask a run to stop; rejects with a reason when it cannot be asked. */
  async stop(id: string, kill = false): Promise<void> {
    this._stopping.add(id);
    this._changed.emit();
    try {
      await this._server.stop(id, kill);
    } catch (error) {
      this._stopping.delete(id);
      throw error;
    } finally {
      await this.refresh();
    }
  }

  /** End a session, or give its ranks fresh processes. */
  async changeSession(name: string, action: 'close' | 'restart'): Promise<void> {
    await this._server.session(name, action).finally(() => this.refresh());
  }

  async remove(id: string): Promise<number> {
    const { freed_bytes } = await this._server.remove(id);
    this._put(
      this._runs.filter(run => run.id !== id),
      this._total - 1
    );
    return freed_bytes;
  }

  diskSize(id: string): Promise<number> {
    return this._server.diskSize(id);
  }

  /** Call a run by another name; by its cell again with an empty one. */
  async rename(id: string, name: string): Promise<void> {
    await this._server.about(id, { name });
    await this.refresh();
  }

  /** Remove what ended more than `days` ago. */
  async clean(days: number): Promise<ICleaned> {
    const cleaned = await this._server.clean(days);
    if (cleaned.removed.length) {
      await this.refresh();
    }
    return cleaned;
  }

  private async _read(): Promise<void> {
    const asked = ++this._asked;
    const wanted = Math.max(PAGE, this._loaded ? this._runs.length : 0);
    try {
      const page = await this._server.runs({ ...this._filter, limit: PAGE });
      let runs = page.runs;
      // Nothing came or went below the first page: what is loaded there still holds.
      const known = this._runs.slice(0, wanted);
      const last = runs.at(-1);
      const below = last ? known.findIndex(run => run.id === last.id) : -1;
      if (below >= 0 && page.total === this._total && below === runs.length - 1) {
        runs = [...runs, ...known.slice(below + 1)];
      } else {
        while (runs.length < Math.min(wanted, page.total) && asked === this._asked) {
          const next = await this._page(runs);
          if (!next.length) {
            break;
          }
          runs = [...runs, ...next];
        }
      }
      if (asked === this._asked && !this._disposed) {
        this._root = page.root;
        this._hint = page.hint;
        this._notebooks = page.notebooks;
        this._sessions = page.sessions;
        this._problem = null;
        this._loaded = true;
        this._put(runs, page.total);
      }
    } catch (error) {
      if (asked === this._asked && !this._disposed) {
        this._problem = explain(error, this._trans);
        this._changed.emit();
      }
      throw error; // the poll waits longer
    }
  }

  private async _older(): Promise<void> {
    if (!this._loaded || this._runs.length >= this._total) {
      return;
    }
    const asked = this._asked;
    try {
      const next = await this._page(this._runs);
      if (asked === this._asked && !this._disposed) {
        const known = new Set(this._runs.map(run => run.id));
        const fresh = next.filter(run => !known.has(run.id));
        this._put([...this._runs, ...fresh], next.length ? this._total : this._runs.length);
      }
    } catch (error) {
      this._problem = explain(error, this._trans);
      this._changed.emit();
    }
  }

  private async _page(after: readonly IRunSummary[]): Promise<IRunSummary[]> {
    const before = after.at(-1)?.id ?? null;
    return (await this._server.runs({ ...this._filter, limit: PAGE, before })).runs;
  }

  private _put(runs: readonly IRunSummary[], total: number): void {
    this._runs = runs;
    this._total = Math.max(total, runs.length);
    const there = new Map(runs.map(run => [run.id, run]));
    if (!this.filtered && runs.length >= this._total) {
      this._selected = this._selected.filter(id => there.has(id));
    }
    for (const id of this._stopping) {
      const run = there.get(id);
      if (!run || ended(run.state)) {
        this._stopping.delete(id);
      }
    }
    if (this._active) {
      this._follow();
    }
    this._changed.emit();
  }

  /** Listen to the list and to each run that goes on. */
  private _follow(): void {
    const alive = new Set(this._runs.filter(run => !ended(run.state)).map(run => run.id));
    alive.add('runs');
    this._unwatch(id => alive.has(id));
    for (const id of alive) {
      if (!this._watched.has(id)) {
        this._watched.set(
          id,
          this._server.watch(id, change => {
            if (change.kind === 'run') {
              this._update(change.run);
              // The session of a cell that has ended is idle now.
              if (this._sessions.length && ended(change.run.state)) {
                void this.refresh();
              }
            } else if (change.kind === 'runs' || (change.kind === 'connection' && id === 'runs')) {
              void this.refresh();
            }
          })
        );
      }
    }
  }

  private _unwatch(keep: (id: string) => boolean): void {
    for (const [id, watch] of [...this._watched]) {
      if (!keep(id)) {
        this._watched.delete(id);
        watch.dispose();
      }
    }
  }

  private _update(run: IRunSummary): void {
    const at = this._runs.findIndex(known => known.id === run.id);
    if (at >= 0) {
      this._put(replaced(this._runs, at, run), this._total);
    }
  }
}

function replaced<T>(items: readonly T[], at: number, item: T): T[] {
  const copy = [...items];
  copy[at] = item;
  return copy;
}
