/** The server extension's WebSocket, one for the whole page. */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import { tailOf, type IDisposable, type ILogSubscription, type IRunInfo } from './run/source';
import type { LogOf, RunChange } from './run/source';

export const ROOT = 'jupyter-dist/api';
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 15_000;
/** How long what the server tells unasked is waited for. */
export const TOLD_MS = 150;

export type Query = Record<string, string | number | boolean | null | undefined>;

export function queryString(query: Query = {}): string {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  if (!known.length) {
    return '';
  }
  return '?' + new URLSearchParams(known.map(([name, value]) => [name, String(value)])).toString();
}

/** Hears of changes of runs and of the list of runs, over one WebSocket that reconnects by itself.
 *
 * It is open while somebody listens. After a lost connection all listeners hear
 * `{kind: 'connection', online}` and should read anew what they show. */
export class Watcher {
  private readonly _listeners = new Map<string, Set<(change: RunChange) => void>>();
  private readonly _along = new Set<{ id: string; rank: number | null; launcher: string | null }>();
  /** How the runs that are listened to stand, and when the server told it. */
  private readonly _told = new Map<string, { run: IRunInfo; at: number }>();
  private _socket: WebSocket | null = null;
  private _timer: ReturnType<typeof setTimeout> | null = null;
  private _retry_ms = FIRST_RETRY_MS;
  private _lost = false;
  /** What is listened to is about to be sent. */
  private _subscribing = false;

  constructor(private readonly _settings: ServerConnection.ISettings) {}

  /** Hear of one run (by id), or of the list of runs (`runs`). */
  watch(subject: string, listener: (change: RunChange) => void): IDisposable {
    const known = this._listeners.get(subject) ?? new Set();
    this._listeners.set(subject, known.add(listener));
    if (known.size === 1) {
      this._subscribe();
    }
    return {
      dispose: () => {
        if (known.delete(listener) && !known.size && this._listeners.get(subject) === known) {
          this._listeners.delete(subject);
          this._told.delete(subject);
          this._subscribe();
        }
      }
    };
  }

  /** How a run stands, if somebody listens to it; null if the server does not tell it unasked. */
  async latestRun(id: string): Promise<IRunInfo | null> {
    const known = this._told.get(id);
    if (known) {
      const passed_s = (performance.now() - known.at) / 1000;
      return { ...known.run, host_time: known.run.host_time + passed_s };
    }
    if (!this._live || !this._listeners.has(id)) {
      return null;
    }
    let watching: IDisposable | undefined;
    const told = await new Promise<IRunInfo | null>(resolve => {
      setTimeout(resolve, TOLD_MS, null);
      watching = this.watch(id, change => {
        if (change.kind === 'run') {
          resolve(change.run);
        } else if (change.kind === 'gone' || change.kind === 'connection') {
          resolve(null);
        }
      });
    });
    watching?.dispose();
    return told;
  }

  /** Have the last lines of a log come with the news of them, to all who listen. */
  followLog(id: string, of: LogOf): ILogSubscription {
    const tail = { id, ...tailOf(of) };
    const { rank, launcher } = tail;
    const live =
      this._live &&
      ![...this._along].some(o => o.id === id && o.rank === rank && o.launcher === launcher);
    this._along.add(tail);
    this._subscribe();
    return {
      live,
      dispose: () => {
        if (this._along.delete(tail)) {
          this._subscribe();
        }
      }
    };
  }

  private get _live(): boolean {
    return this._socket?.readyState === 1;
  }

  private _subscribe(): void {
    if (!this._listeners.size) {
      this._close();
    } else if (!this._socket) {
      if (!this._timer) {
        this._connect();
      }
    } else if (!this._subscribing) {
      // One message for all that a new view asks for, and so one answer.
      this._subscribing = true;
      queueMicrotask(() => {
        this._subscribing = false;
        if (this._listeners.size) {
          this._send({ watch: [...this._listeners.keys()], tails: [...this._along] });
        }
      });
    }
  }

  private _send(said: unknown): void {
    if (this._live) {
      this._socket?.send(JSON.stringify(said));
    }
  }

  private _connect(): void {
    this._timer = null;
    const { wsUrl, appendToken, token, WebSocket: Socket } = this._settings;
    const url =
      URLExt.join(wsUrl, ROOT, 'watch') + (appendToken && token ? queryString({ token }) : '');
    const socket = new Socket(url);
    this._socket = socket;
    socket.onopen = () => {
      this._retry_ms = FIRST_RETRY_MS;
      this._subscribe();
      if (this._lost) {
        this._lost = false;
        this._tell({ kind: 'connection', online: true });
      }
    };
    socket.onmessage = (message: MessageEvent) => {
      let changes: RunChange[];
      try {
        const said = JSON.parse(String(message.data)) as RunChange | RunChange[];
        // A server that runs since before an update sends each change for itself.
        changes = Array.isArray(said) ? said : [said];
      } catch {
        socket.close(); // what is shown is read anew with the next connection
        return;
      }
      for (const change of changes) {
        this._tell(change);
        if (change.kind === 'log' && change.push !== undefined) {
          this._send({ got: change.push });
        }
      }
    };
    socket.onclose = () => {
      if (this._socket !== socket) {
        return;
      }
      this._socket = null;
      this._told.clear();
      if (!this._lost) {
        this._lost = true;
        this._tell({ kind: 'connection', online: false });
      }
      // Spread, so that many pages do not fall upon a restarted server at once.
      this._timer = setTimeout(() => this._connect(), this._retry_ms * (0.75 + Math.random() / 2));
      this._retry_ms = Math.min(LAST_RETRY_MS, this._retry_ms * 1.7);
    };
  }

  private _close(): void {
    if (this._timer) {
      clearTimeout(this._timer);
      this._timer = null;
    }
    const socket = this._socket;
    this._socket = null;
    this._lost = false;
    this._retry_ms = FIRST_RETRY_MS;
    socket?.close();
  }

  private _tell(change: RunChange): void {
    if (change.kind === 'run' && this._listeners.has(change.run.id)) {
      this._told.set(change.run.id, { run: change.run, at: performance.now() });
    } else if (change.kind === 'gone') {
      this._told.delete(change.id);
    }
    const subject =
      change.kind === 'run'
        ? change.run.id
        : change.kind === 'runs'
          ? 'runs'
          : change.kind === 'connection'
            ? null
            : change.id;
    const subjects =
      subject === null ? [...this._listeners.values()] : [this._listeners.get(subject)];
    for (const listeners of subjects) {
      for (const listener of [...(listeners ?? [])]) {
        try {
          listener(change);
        } catch (error) {
          console.error('jupyter-dist: a view failed', error); // the others hear of it too
        }
      }
    }
  }
}

const watchers = new WeakMap<ServerConnection.ISettings, Watcher>();

/** The page's one watcher for a server. */
export function watcher(settings: ServerConnection.ISettings): Watcher {
  const known = watchers.get(settings) ?? new Watcher(settings);
  watchers.set(settings, known);
  return known;
}
