/** The runs that a list shows: pages of them, their live state, and what can be done with them. */
import { type ISignal, Signal } from '@lumino/signaling';
import type { ISessionInfo } from '../answers/sessions';
import { ended, type IDisposable, type IRunSummary } from '../run/source';
import type { TranslationBundle } from '@jupyterlab/translation';
import { explain } from './explain';
import { type IRunFilter, type IRunReader, NO_FILTER, PAGE, type RunLists } from './runlists';
import type { ICleaned, IRunPage, IServer } from './server';

export interface IRunsModelOptions {
  server: IServer;
  lists: RunLists;
  trans: TranslationBundle;
  /** How often the list is read again although nothing said that it changed. */
  interval_s?: number;
}

/** A list of runs, newest first. It is read and followed only while `active`. */
export class RunsModel implements IDisposable, IRunReader {
  interval_s: number;
  private readonly _server: IServer;
  private readonly _lists: RunLists;
  private readonly _trans: TranslationBundle;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _stopping = new Set<string>();
  private _listening: IDisposable | null = null;
  private _page: IRunPage | null = null;
  private _runs: readonly IRunSummary[] = [];
  private _wanted = PAGE;
  private _selected: readonly string[] = [];
  private _filter: IRunFilter = NO_FILTER;
  /** The filter that the known page answers. */
  private _answered: IRunFilter | null = null;
  private _problem: string | null = null;

  constructor({ server, lists, trans, interval_s = 10 }: IRunsModelOptions) {
    this._server = server;
    this._lists = lists;
    this._trans = trans;
    this.interval_s = interval_s;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get runs(): readonly IRunSummary[] {
    return this._runs;
  }

  /** Ranks that stay between cells, by name. */
  get sessions(): readonly ISessionInfo[] {
    return this._page?.sessions ?? [];
  }

  /** How many runs pass the filter, loaded or not. */
  get total(): number {
    return Math.max(this._page?.total ?? 0, this._runs.length);
  }

  get root(): string | null {
    return this._page?.root ?? null;
  }

  /** Where the server looks, when there are no runs at all. */
  get hint(): string | null {
    return this._page?.hint ?? null;
  }

  /** Why the list may be old or empty, in one sentence. */
  get problem(): string | null {
    return this._problem;
  }

  /** Whether the server has answered for this filter. */
  get loaded(): boolean {
    return this._answered === this._filter;
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
    return [...new Set([...(this._page?.notebooks ?? []), ...(notebook ? [notebook] : [])])].sort();
  }

  /** Ids in the order in which they were chosen. */
  get selected(): readonly string[] {
    return this._selected;
  }

  /** How many runs are shown, if there are so many. */
  get wanted(): number {
    return this._wanted;
  }

  get active(): boolean {
    return this._listening !== null;
  }

  set active(active: boolean) {
    if (active) {
      this._listening ??= this._lists.listen(this);
    } else {
      this._listening?.dispose();
      this._listening = null;
    }
  }

  dispose(): void {
    this.active = false;
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
    this._wanted = PAGE;
    this._changed.emit();
    return this._lists.refresh(this);
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

  /** Read anew what this and other parts of the page show. Failures end in `problem`. */
  refresh(): Promise<void> {
    return this._lists.refresh();
  }

  /** Load the next older runs, if there are any. */
  more(): Promise<void> {
    if (this._runs.length >= this._wanted) {
      this._wanted += PAGE;
    }
    return this._lists.fill(this);
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
    this._lists.put(id, null);
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

  take(page: IRunPage, changed?: IRunSummary): void {
    const runs = page.runs.slice(0, this._wanted);
    this._page = page;
    this._answered = this._filter;
    this._runs = runs;
    if (!changed) {
      this._problem = null;
    }
    const there = new Map(runs.map(run => [run.id, run]));
    if (!this.filtered && runs.length >= page.total) {
      this._selected = this._selected.filter(id => there.has(id));
    }
    for (const id of this._stopping) {
      const run = there.get(id);
      if (!run || ended(run.state)) {
        this._stopping.delete(id);
      }
    }
    this._changed.emit();
  }

  fail(error: unknown): void {
    this._problem = explain(error, this._trans);
    this._changed.emit();
  }
}
