/** The server extension's REST API. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { ILogLine, ILogPage, ISearchResult } from './answers/logs';
import type { IDisplays, IMediaList, IMediaPage } from './answers/media';
import type { ICurves, IStepProfile, IUsage } from './answers/metrics';
import type { IFailureCard, IRankError, IResult, IStacks } from './answers/ranks';
import type { IRunInfo, ISavedOutput } from './answers/runs';
import type {
  Attempt,
  IContent,
  ICurvesQuery,
  IDisposable,
  ILogSubscription,
  IRunSource,
  ISearchQuery,
  LogOf,
  RunChange
} from './run/source';
import { logQuery, logFile, contentQuery, RunMissing } from './run/source';
import { queryString, ROOT, watcher, type Query } from './watcher';

export { watcher };

const RETRY_MS = 500;

/** An answer of the server that says no; `message` is its own words. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly data: Record<string, unknown> = {}
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** Ask the server extension and parse its JSON. Rejects with ApiError, or a network error. */
export async function request<T>(
  settings: ServerConnection.ISettings,
  path: string,
  init: RequestInit & { query?: Query } = {}
): Promise<T> {
  const { query, ...rest } = init;
  const url = URLExt.join(settings.baseUrl, ROOT, path) + queryString(query);
  const response = await fetchTwice(url, rest, settings);
  const text = await response.text();
  let data: unknown = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    // A proxy's page, say: what counts is the status.
  }
  if (!response.ok) {
    const details = (data && typeof data === 'object' ? data : {}) as Record<string, unknown>;
    const message = typeof details.message === 'string' ? details.message : '';
    throw new ApiError(
      message || `${response.status} ${response.statusText}`,
      response.status,
      details
    );
  }
  return data as T;
}

/** A question whose connection breaks is asked once more: of an ended run there may be no other occasion. */
async function fetchTwice(
  url: string,
  init: RequestInit,
  settings: ServerConnection.ISettings
): Promise<Response> {
  try {
    return await ServerConnection.makeRequest(url, init, settings);
  } catch (error) {
    const again = (init.method ?? 'GET') === 'GET' && !init.signal?.aborted;
    if (!again || !(error instanceof ServerConnection.NetworkError)) {
      throw error;
    }
  }
  await new Promise(go => setTimeout(go, RETRY_MS));
  return ServerConnection.makeRequest(url, init, settings);
}

/** What a link must carry where the page is logged in by a cookie; requests have it as a header. */
function xsrfToken(): string | null {
  return /(?:^|;\s*)_xsrf=([^;]*)/.exec(document.cookie)?.[1] ?? null;
}

/** A call with a JSON body. */
export function send<T>(
  settings: ServerConnection.ISettings,
  method: 'POST' | 'PUT' | 'DELETE',
  path: string,
  body: unknown = {}
): Promise<T> {
  return request<T>(settings, path, {
    method,
    ...(method === 'DELETE' ? {} : { body: JSON.stringify(body) })
  });
}

/** What a notebook's file keeps of a run. Rejects with ApiError (404) where there is no such run. */
export function savedOutput(
  settings: ServerConnection.ISettings,
  run: string
): Promise<ISavedOutput> {
  return request<ISavedOutput>(settings, `runs/${encodeURIComponent(run)}/output`);
}

/** A run that the server extension reads from the disk. */
export class ServerRunSource implements IRunSource {
  readonly kind = 'server';

  constructor(
    readonly id: string,
    private readonly _settings: ServerConnection.ISettings
  ) {}

  async run(): Promise<IRunInfo> {
    return (await watcher(this._settings).latestRun(this.id)) ?? this._get('');
  }

  logPage(of: LogOf, start: number, count: number, attempt?: Attempt): Promise<ILogPage> {
    return this._get('/log', { ...logQuery(of), attempt, start, count });
  }

  logLines(of: LogOf, numbers: readonly number[], attempt?: Attempt): Promise<ILogLine[]> {
    return this._get('/log/lines', { ...logQuery(of), attempt, numbers: numbers.join() });
  }

  logSearch(of: LogOf, query: ISearchQuery, signal?: AbortSignal): Promise<ISearchResult> {
    return this._get('/log/search', { ...logQuery(of), ...query }, signal);
  }

  curves(points: number, { names, ...query }: ICurvesQuery = {}): Promise<ICurves> {
    // As JSON: a name may contain a comma.
    return this._get('/curves', { points, ...query, names: names && JSON.stringify(names) });
  }

  usage(points: number): Promise<IUsage> {
    return this._get('/usage', { points });
  }

  profile(): Promise<IStepProfile> {
    return this._get('/profile');
  }

  errors(attempt?: Attempt): Promise<IRankError[]> {
    return this._get('/errors', { attempt });
  }

  card(attempt?: Attempt): Promise<IFailureCard | null> {
    return this._get('/card', { attempt });
  }

  results(): Promise<IResult[]> {
    return this._get('/results');
  }

  displays(page: Query = {}): Promise<IDisplays> {
    return this._get('/displays', page);
  }

  media(attempt?: Attempt): Promise<IMediaList> {
    return this._get('/media', { attempt });
  }

  mediaPage(name: string, start: number, count: number, attempt?: Attempt): Promise<IMediaPage> {
    return this._get('/media/page', { name, start, count, attempt });
  }

  async content(rank: number, content: IContent, attempt?: Attempt): Promise<Blob> {
    const { baseUrl } = this._settings;
    const url =
      URLExt.join(baseUrl, ROOT, this._path, 'content') +
      queryString(contentQuery(rank, content, attempt));
    // Its hash is in its address: what the browser has is still right.
    const init: RequestInit = { cache: 'default' };
    const response = await fetchTwice(url, init, this._settings);
    if (!response.ok) {
      throw new ApiError(`${response.status} ${response.statusText}`, response.status);
    }
    return response.blob();
  }

  stacks(): Promise<IStacks> {
    return send(this._settings, 'POST', `${this._path}/stacks`);
  }

  keptStacks(): Promise<IStacks> {
    return this._get('/stacks');
  }

  async stop(kill: boolean): Promise<void> {
    await send(this._settings, 'POST', `${this._path}/stop`, { kill });
  }

  async download(of: LogOf, attempt?: Attempt): Promise<void> {
    this._save('log/download', { ...logQuery(of), attempt }, logFile(this.id, of, attempt));
  }

  async downloadFile(file: string): Promise<void> {
    this._save('files/download', { file }, `${this.id}-${file}`);
  }

  watch(listener: (change: RunChange) => void): IDisposable {
    return watcher(this._settings).watch(this.id, listener);
  }

  followLog(of: LogOf): ILogSubscription {
    return watcher(this._settings).followLog(this.id, of);
  }

  /** By a link rather than a fetch: the browser then writes the file as it comes, whatever its size. */
  private _save(path: string, query: Query, name: string): void {
    const { baseUrl, appendToken, token } = this._settings;
    const link = document.createElement('a');
    link.href =
      URLExt.join(baseUrl, ROOT, this._path, path) +
      queryString({ ...query, token: appendToken && token ? token : null, _xsrf: xsrfToken() });
    link.download = name;
    link.click();
  }

  private get _path(): string {
    return `runs/${encodeURIComponent(this.id)}`;
  }

  private async _get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    try {
      return await request<T>(this._settings, this._path + path, { query, signal });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) {
        const root = error.data.root;
        throw new RunMissing(error.message, typeof root === 'string' ? root : null);
      }
      throw error;
    }
  }
}
