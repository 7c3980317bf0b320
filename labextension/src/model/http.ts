/** The server extension's REST API, as the models ask for it. */
import type { ServerConnection } from '@jupyterlab/services';
import { request, send } from '../api';
import { watcher } from '../watcher';
import type { ILaunching } from '../answers/forms';
import type { IAbout, IEnvironment } from '../answers/runs';
import type { IDisposable, IRunInfo, RunChange } from '../run/source';
import type {
  IAboutChange,
  IBackend,
  ICleaned,
  IClusterData,
  IClusterList,
  IClusterTest,
  IRunPage,
  IRunQuery,
  IFormMeaning,
  IServer,
  LaunchVerb
} from './server';

export class HttpServer implements IServer {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  runs(query: IRunQuery): Promise<IRunPage> {
    return request(this._settings, 'runs', { query: { ...query, text: query.text || null } });
  }

  run(id: string): Promise<IRunInfo> {
    return request(this._settings, `runs/${encodeURIComponent(id)}`);
  }

  async stop(id: string, kill: boolean): Promise<void> {
    await send(this._settings, 'POST', `runs/${encodeURIComponent(id)}/stop`, { kill });
  }

  remove(id: string): Promise<{ freed_bytes: number }> {
    return send(this._settings, 'DELETE', `runs/${encodeURIComponent(id)}`);
  }

  about(id: string, change: IAboutChange): Promise<IAbout> {
    return send(this._settings, 'PUT', `runs/${encodeURIComponent(id)}/about`, change);
  }

  environment(id: string): Promise<IEnvironment> {
    return request(this._settings, `runs/${encodeURIComponent(id)}/environment`);
  }

  async diskSize(id: string): Promise<number> {
    const { bytes } = await request<{ bytes: number }>(
      this._settings,
      `runs/${encodeURIComponent(id)}/size`
    );
    return bytes;
  }

  clean(days: number): Promise<ICleaned> {
    return send(this._settings, 'POST', 'clean', { days });
  }

  backends(folder: string | null): Promise<IBackend[]> {
    return request(this._settings, 'backends', { query: { folder } });
  }

  clusters(): Promise<IClusterList> {
    return request(this._settings, 'clusters');
  }

  meaning(
    backend: string,
    options: Record<string, unknown>,
    folder: string | null
  ): Promise<IFormMeaning> {
    const path = `backends/${encodeURIComponent(backend)}/meaning`;
    return send(this._settings, 'POST', path, { options, folder });
  }

  async saveCluster(name: string, data: IClusterData, oldName: string | null): Promise<void> {
    await send(this._settings, 'PUT', `clusters/${encodeURIComponent(name)}`, {
      backend: data.backend,
      options: data.options,
      old_name: oldName
    });
  }

  async deleteCluster(name: string): Promise<void> {
    await send(this._settings, 'DELETE', `clusters/${encodeURIComponent(name)}`);
  }

  async duplicateCluster(name: string): Promise<string> {
    const path = `clusters/${encodeURIComponent(name)}/duplicate`;
    return (await send<{ name: string }>(this._settings, 'POST', path)).name;
  }

  testCluster(name: string): Promise<IClusterTest> {
    return send(this._settings, 'POST', `clusters/${encodeURIComponent(name)}/test`);
  }

  async session(name: string, action: 'close' | 'restart'): Promise<void> {
    await send(this._settings, 'POST', `sessions/${encodeURIComponent(name)}/${action}`);
  }

  async launchRay(verb: LaunchVerb, file: string): Promise<string> {
    return (await send<ILaunching>(this._settings, 'POST', `ray/${verb}`, { file })).run_id;
  }

  watch(subject: string, listener: (change: RunChange) => void): IDisposable {
    return watcher(this._settings).watch(subject, listener);
  }
}
