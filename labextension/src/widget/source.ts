/** A run that a kernel tells of, over a widget's comm.
 *
 * The kernel is in one of three conditions. It answers: then this works like the server. It cannot be
 * heard, because a cell runs and there are no subshells: then it renews a snapshot, and what is not in
 * there waits. It is gone: then the snapshot is all there is. */
import type {
  Attempt,
  IContent,
  ICurves,
  ICurvesQuery,
  IDisplays,
  IDisposable,
  ILogLine,
  ILogPage,
  IMediaList,
  IMediaPage,
  IFailureCard,
  IRankError,
  IResult,
  IRunInfo,
  IRunSource,
  ISearchQuery,
  ISearchResult,
  IStacks,
  IUsage,
  LogOf,
  RunChange
} from '../run/source';
import { logQuery, logFile, contentQuery, RunMissing } from '../run/source';
import { Timers } from '../run/timers';
import type { Trans } from '../run/trans';
import * as snapshots from './snapshots';
import { KernelSilent, type IQuestion } from './question';
import { saveInPieces } from './savefile';
import { snapshotOf, type IModel, type ISnapshot, type Message } from './model';

const HEARTBEAT_MS = 10_000;
/** A kernel that says nothing for that long after it was spoken to is not listening. */
const DEAF_MS = 3_000;

export class KernelRunSource implements IRunSource {
  readonly kind = 'kernel';
  readonly id: string;
  /** Told why something cannot be done now, for those who tried; null when it is over. */
  onRefused: (why: string | null) => void = () => {};
  private readonly _listeners = new Set<(change: RunChange) => void>();
  private readonly _asked = new Map<number, IQuestion>();
  private readonly _whenHeard: (() => void)[] = [];
  /** Fulfilled when the kernel was heard, now that it can be, or was silent for too long. */
  private _greeted: Promise<void>;
  private readonly _abort = new AbortController();
  private readonly _timers = new Timers();
  /** Other views of the same widget ask over the same comm, and count from elsewhere. */
  private _asks = Math.floor(Math.random() * 2 ** 40);
  private _heard = -Infinity;
  private _answers = false;
  private _lost = false;
  private _shown: ISnapshot | null;

  constructor(
    private readonly _model: IModel,
    private readonly _trans: Trans
  ) {
    this.id = String(_model.get('run'));
    this._shown = snapshotOf(_model);
    const onMessage = (message: Message, buffers: unknown) => this._take(message, buffers);
    const onSnapshot = () => this._retold();
    _model.on('msg:custom', onMessage);
    _model.on('change:snapshot', onSnapshot);
    const beat = setInterval(() => this._beat(), HEARTBEAT_MS);
    this._abort.signal.addEventListener('abort', () => {
      _model.off('msg:custom', onMessage);
      _model.off('change:snapshot', onSnapshot);
      clearInterval(beat);
      this._timers.clear();
      this._send({ kind: 'unwatch' });
    });
    this._greeted = this._greeting();
    this._beat();
  }

  dispose(): void {
    this._abort.abort();
    this._listeners.clear();
    this._asked.forEach(asked => asked.reject(new Error('disposed')));
    this._asked.clear();
  }

  run(): Promise<IRunInfo> {
    return this._get('run', {}, kept =>
      // Of launchers' logs and files there is nothing.
      kept.told ? kept.run : { ...kept.run, launchers: [], files: [] }
    );
  }

  async logPage(of: LogOf, start: number, count: number, attempt?: Attempt): Promise<ILogPage> {
    if (snapshots.isEarlier(attempt)) {
      return this._ofEarlier('log_page', { ...logQuery(of), start, count, attempt });
    }
    return this._get('log_page', { ...logQuery(of), start, count }, kept =>
      snapshots.knownPage(kept, of, start, count)
    );
  }

  logLines = (of: LogOf, numbers: readonly number[], attempt?: Attempt) =>
    this._ask<ILogLine[]>('log_lines', { ...logQuery(of), numbers, attempt });

  logSearch(of: LogOf, query: ISearchQuery, signal?: AbortSignal): Promise<ISearchResult> {
    return this._ifHeard(
      this._trans('The log can be searched when the cell has ended.'),
      this._trans('The log cannot be searched without its kernel.'),
      () => this._ask('log_search', { ...logQuery(of), ...query }, signal)
    );
  }

  curves = (points: number, query: ICurvesQuery = {}) =>
    this._get<ICurves>('curves', { points, ...query }, kept => kept.curves);

  usage = (points: number) =>
    this._get<IUsage>('usage', { points }, () => ({ attempt: 0, host_time: 0, ranks: [] }));

  profile = () => this._get('profile', {}, kept => kept.profile ?? snapshots.NO_STEPS);

  async errors(attempt?: Attempt): Promise<IRankError[]> {
    if (snapshots.isEarlier(attempt)) {
      return this._ofEarlier('errors', { attempt });
    }
    return this._get('errors', {}, kept => kept.errors);
  }

  async card(attempt?: Attempt): Promise<IFailureCard | null> {
    if (snapshots.isEarlier(attempt)) {
      return this._ofEarlier('card', { attempt });
    }
    // A snapshot without a card is no reason to wait for a kernel that may never answer.
    const kept = () => this._kept?.card ?? null;
    return this._kept ? kept() : this._ask<IFailureCard | null>('card').catch(kept);
  }

  results = () => this._get<IResult[]>('results', {}, kept => kept.results);

  displays(page: Record<string, unknown> = {}): Promise<IDisplays> {
    return this._get('displays', page, snapshots.keptDisplays);
  }

  media = (attempt?: Attempt) =>
    this._get<IMediaList>('media', { attempt }, kept => kept.media?.list ?? snapshots.NO_MEDIA);

  mediaPage(name: string, start: number, count: number, attempt?: Attempt): Promise<IMediaPage> {
    const page = { name, start, count, attempt };
    return this._get('media_page', page, kept => snapshots.keptMedia(kept, name));
  }

  content(rank: number, content: IContent, attempt?: Attempt): Promise<Blob> {
    return this._ask('content', contentQuery(rank, content, attempt));
  }

  stacks(): Promise<IStacks> {
    return this._ifHeard(
      this._trans('This kernel is busy with the cell. Type in a terminal: jupyter dist stacks'),
      this._trans('The kernel is not connected.'),
      () => this._ask('stacks')
    );
  }

  keptStacks = () =>
    this._get<IStacks>('kept_stacks', {}, kept => kept.stacks ?? { groups: [], silent: [] });

  async stop(kill: boolean): Promise<void> {
    await this._ifHeard(
      this._trans('This kernel is busy with the cell. To stop it, use Interrupt (the ■ above).'),
      this._trans(
        'The kernel is not connected. To stop the run, type in a terminal: jupyter dist stop %1',
        this.id
      ),
      () => this._ask('stop', { kill })
    );
  }

  /** The model of a widget that shows a trial of this run. */
  open(trial: string): Promise<string> {
    return this._ifHeard(
      this._trans('A trial can be opened here when the cell has ended.'),
      this._trans('A trial cannot be opened without its kernel.'),
      () => this._ask('open', { trial })
    );
  }

  async download(of: LogOf, attempt?: Attempt): Promise<void> {
    await this._ifHeard(
      this._trans('The log can be downloaded when the cell has ended.'),
      this._trans('The log cannot be downloaded without its kernel.'),
      () => this._save({ ...logQuery(of), attempt }, logFile(this.id, of, attempt), 'text/plain')
    );
  }

  async downloadFile(file: string): Promise<void> {
    await this._ifHeard(
      this._trans('Files can be downloaded when the cell has ended.'),
      this._trans('Files cannot be downloaded without their kernel.'),
      () => this._save({ file }, `${this.id}-${file}`, 'application/octet-stream')
    );
  }

  private _save(what: object, name: string, type: string): Promise<void> {
    const key = `${Math.random()}`;
    return saveInPieces(() => this._ask('download', { key, ...what }), name, type);
  }

  watch(listener: (change: RunChange) => void): IDisposable {
    this._listeners.add(listener);
    return { dispose: () => void this._listeners.delete(listener) };
  }

  /** The snapshot, when it is better than asking. */
  private get _kept(): ISnapshot | null {
    return this._answers ? null : this._shown;
  }

  private _ofEarlier<T>(method: string, args: Record<string, unknown>): Promise<T> {
    return this._ifHeard(
      this._trans('Earlier attempts can be shown when the cell has ended.'),
      this._trans('Earlier attempts cannot be shown without their kernel.'),
      () => this._ask(method, args)
    );
  }

  /** Do what only the kernel can do. A kernel that was not heard yet may still answer. */
  private async _ifHeard<T>(busy: string, gone: string, go: () => Promise<T>): Promise<T> {
    if (this._kept && !this._kept.told) {
      await this._greeted;
    }
    const kept = this._kept;
    if (kept) {
      const why = kept.told ? busy : gone;
      this.onRefused(why);
      throw new Error(why);
    }
    return go();
  }

  /** From the snapshot where that is better, else by asking. */
  private async _get<T>(
    method: string,
    args: Record<string, unknown>,
    kept: (snapshot: ISnapshot) => T | null
  ): Promise<T> {
    const known = this._kept && kept(this._kept);
    if (known) {
      return known;
    }
    try {
      return await this._ask<T>(method, args);
    } catch (error) {
      if (!(error instanceof KernelSilent) || !this._kept) {
        throw error;
      }
      return this._get(method, args, kept);
    }
  }

  private _ask<T>(method: string, args: object = {}, signal?: AbortSignal): Promise<T> {
    return new Promise<unknown>((resolve, reject) => {
      const asked = { resolve, reject, method, args, signal };
      if (this._kept) {
        // It would stand in a queue behind the cell, and be answered when nobody wants it any more.
        this._whenHeard.push(() => this._put(asked));
      } else {
        this._put(asked);
      }
    }) as Promise<T>;
  }

  private _put(asked: IQuestion): void {
    const ask = ++this._asks;
    this._asked.set(ask, asked);
    const question = { kind: 'ask', ask, method: asked.method, args: asked.args };
    this._send(question);
    asked.signal?.addEventListener('abort', () => this._send({ kind: 'cancel', ask }));
    const began = performance.now();
    const waiting = () => this._asked.has(ask) && this._heard <= began;
    // A search takes seconds, and a kernel that listens says so meanwhile. A connection that breaks
    // loses the question. The kernel ignores one that it already has.
    this._timers.later(DEAF_MS / 2, () => {
      if (this._asked.has(ask)) {
        this._send({ kind: 'watch' });
        this._send(question);
      }
    });
    this._timers.later(DEAF_MS, () => {
      if (waiting() && this._shown) {
        this._asked.delete(ask);
        this._answers = false;
        asked.reject(new KernelSilent(this._trans('The kernel does not answer.')));
      }
    });
  }

  private _send(content: unknown): void {
    try {
      this._model.send(content);
    } catch {
      // No comm: a saved notebook without a kernel.
    }
  }

  private _take(message: Message, buffers: unknown): void {
    this._heard = performance.now();
    const asked = message.kind === 'answer' ? this._asked.get(message.ask) : undefined;
    if (message.kind === 'answer' && asked) {
      this._asked.delete(message.ask);
      if (message.error !== undefined) {
        asked.reject(
          message.missing === undefined
            ? new Error(message.error)
            : new RunMissing(message.error, message.missing)
        );
      } else if (asked.method === 'download') {
        asked.resolve((buffers as BlobPart[] | undefined)?.[0] ?? null);
      } else if (asked.method === 'content') {
        asked.resolve(new Blob(buffers as BlobPart[], { type: String(message.result) }));
      } else {
        asked.resolve(message.result);
      }
    }
    if (!this._answers) {
      this.onRefused(null);
      const known = this._lost || this._shown !== null;
      this._answers = true;
      this._lost = false;
      this._whenHeard.splice(0).forEach(go => go());
      if (known) {
        this._tell({ kind: 'connection', online: true }); // what was shown is read anew
      }
    }
    if (message.kind === 'changes') {
      message.changes.forEach(change => this._tell(change));
    }
  }

  /** The kernel has renewed the snapshot. */
  private _retold(): void {
    const before = this._shown;
    const shown = (this._shown = snapshotOf(this._model));
    if (!shown) {
      return;
    }
    if (shown.told) {
      this._answers = false;
    }
    snapshots.newsOf(this.id, shown).forEach(change => this._tell(change));
    if (before?.told && !shown.told) {
      this._greeted = this._greeting();
      this._send({ kind: 'watch' }); // it can be heard again
    }
  }

  private _greeting(): Promise<void> {
    return new Promise(resolve => {
      this._whenHeard.push(resolve);
      this._timers.later(DEAF_MS, resolve);
    });
  }

  /** Say that somebody is looking, and notice when nothing comes back. */
  private _beat(): void {
    const began = performance.now();
    this._send({ kind: 'watch' });
    this._timers.later(DEAF_MS, () => {
      if (this._heard >= began || this._shown?.told || this._lost) {
        return;
      }
      if (this._shown?.final) {
        const part = snapshots.partOfLog(this._shown, this._trans);
        if (part && !this._answers) {
          this.onRefused(part);
        }
        return;
      }
      this._lost = true;
      this._answers = false;
      this._tell({ kind: 'connection', online: false });
      if (!this._shown && this._heard < 0) {
        const error = new Error(
          this._trans('The kernel of this run does not answer. It may be busy or disconnected.')
        );
        this._asked.forEach(({ method, reject }) => method === 'run' && reject(error));
      }
    });
  }

  private _tell(change: RunChange): void {
    [...this._listeners].forEach(listener => listener(change));
  }
}
