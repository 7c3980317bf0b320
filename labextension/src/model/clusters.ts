/** Saved clusters and backends, and what can be done with them. */
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';
import { ended, type IRunInfo } from '../run/source';
import type { TranslationBundle } from '@jupyterlab/translation';
import { explain } from './explain';
import type { IBackend, ICluster, IClusterData, IFormMeaning, IServer, LaunchVerb } from './server';

/** How the latest test of a cluster went. */
export interface ITest {
  readonly state: 'running' | 'passed' | 'failed';
  readonly text: string;
  readonly run: string | null;
  /** Where the cluster names several hosts: how it went on each. */
  readonly hosts?: readonly IHostTest[];
}

export interface IHostTest {
  readonly host: string;
  /** null: it was not asked, for nothing is started where another one cannot be reached. */
  readonly passed: boolean | null;
}

export class ClustersModel implements IDisposable {
  private readonly _changed = new Signal<this, void>(this);
  private readonly _tests = new Map<string, ITest>();
  private readonly _watched = new Map<string, { dispose(): void }>();
  private _clusters: readonly ICluster[] = [];
  private _backends: readonly IBackend[] = [];
  private _path = '';
  private _problem: string | null = null;
  private _loaded = false;
  private _read: string | null = null;
  private _asked = 0;
  private _disposed = false;

  constructor(
    private readonly _server: IServer,
    private readonly _trans: TranslationBundle,
    /** The folder of the notebook in front. */
    private readonly _folder: () => string | null = () => null
  ) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get clusters(): readonly ICluster[] {
    return this._clusters;
  }

  get backends(): readonly IBackend[] {
    return this._backends;
  }

  /** The file that holds the clusters. */
  get path(): string {
    return this._path;
  }

  get problem(): string | null {
    return this._problem;
  }

  get loaded(): boolean {
    return this._loaded;
  }

  /** Whether the notebook in front has another folder than at the last refresh. */
  get outdated(): boolean {
    return this._loaded && this._folder() !== this._read;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  test(name: string): ITest | undefined {
    return this._tests.get(name);
  }

  backend(name: string): IBackend | undefined {
    return this._backends.find(backend => backend.name === name);
  }

  /** Read both anew. Failures end in `problem`; what was there stays. */
  async refresh(): Promise<void> {
    const asked = ++this._asked;
    const folder = (this._read = this._folder());
    const [backends, clusters] = await Promise.allSettled([
      this._server.backends(folder),
      this._server.clusters()
    ]);
    if (asked !== this._asked || this._disposed) {
      return;
    }
    this._problem = null;
    if (backends.status === 'fulfilled') {
      this._backends = backends.value;
    }
    if (clusters.status === 'fulfilled') {
      this._clusters = clusters.value.clusters;
      this._path = clusters.value.path;
      this._problem = clusters.value.problem;
    }
    for (const answer of [backends, clusters]) {
      if (answer.status === 'rejected') {
        this._problem ??= explain(answer.reason, this._trans);
      }
    }
    this._loaded = this._loaded || this._problem === null;
    this._changed.emit();
  }

  /** What a form with these values means. */
  meaning(backend: string, options: Record<string, unknown>): Promise<IFormMeaning> {
    return this._server.meaning(backend, options, this._folder());
  }

  /** Save a cluster; rejects with the server's ApiError when it does not hold. */
  async save(name: string, data: IClusterData, oldName: string | null): Promise<void> {
    await this._server.saveCluster(name, data, oldName);
    this._forget(oldName ?? name);
    await this.refresh();
  }

  async remove(name: string): Promise<void> {
    await this._server.deleteCluster(name);
    this._forget(name);
    await this.refresh();
  }

  /** Returns the copy's name. */
  async duplicate(name: string): Promise<string> {
    const copy = await this._server.duplicateCluster(name);
    await this.refresh();
    return copy;
  }

  /** Run a test job on every host, or of one rank; its outcome is in `test(name)`. Never rejects. */
  async startTest(name: string): Promise<void> {
    this._forget(name);
    this._tell(name, { state: 'running', text: this._trans.__('Testing…'), run: null });
    let id: string;
    let hosts: readonly string[];
    try {
      ({ run_id: id, hosts } = await this._server.testCluster(name));
    } catch (error) {
      this._tell(name, { state: 'failed', text: explain(error, this._trans), run: null });
      return;
    }
    if (this._disposed) {
      return;
    }
    this._tell(name, { state: 'running', text: this._trans.__('Testing…'), run: id });
    const look = async () => {
      try {
        this._judge(name, await this._server.run(id), hosts);
      } catch {
        // The next change, or the next connection, brings it.
      }
    };
    this._watched.set(
      name,
      this._server.watch(id, change => {
        if (change.kind === 'run') {
          this._judge(name, change.run, hosts);
        } else if (change.kind === 'connection') {
          void look();
        }
      })
    );
    // It may have ended before anybody listened.
    await look();
  }

  /** Launch, attach to or take down a Ray cluster; returns the run that does it. The run changes the saved
   * clusters, which are read anew at its end. */
  async launch(verb: LaunchVerb, file: string): Promise<string> {
    const id = await this._server.launchRay(verb, file);
    const key = `run:${id}`;
    this._watched.get(key)?.dispose();
    const watch = this._server.watch(id, change => {
      if (change.kind === 'run' && ended(change.run.state)) {
        watch.dispose();
        this._watched.delete(key);
        void this.refresh();
      }
    });
    this._watched.set(key, watch);
    return id;
  }

  dispose(): void {
    this._disposed = true;
    this._watched.forEach(watch => watch.dispose());
    this._watched.clear();
    Signal.clearData(this);
  }

  /** Show the outcome of a test no more. */
  dismissTest(name: string): void {
    this._forget(name);
    this._changed.emit();
  }

  private _judge(name: string, run: IRunInfo, hosts: readonly string[]): void {
    if (!ended(run.state) || this._tests.get(name)?.run !== run.id) {
      return;
    }
    this._watched.get(name)?.dispose();
    this._watched.delete(name);
    const host = hosts.length > 1 ? this._trans.__('%1 hosts', hosts.length) : run.ranks[0]?.host;
    const passed = run.state === 'succeeded';
    const seconds = (run.ended ?? run.created) - run.created;
    this._tell(name, {
      state: passed ? 'passed' : 'failed',
      text: passed
        ? host
          ? this._trans.__('Works: %1 answered in %2 s', host, seconds.toFixed(1))
          : this._trans.__('Works: answered in %1 s', seconds.toFixed(1))
        : run.reason || this._trans.__('The test run %1.', run.state),
      run: run.id,
      hosts: hosts.length > 1 ? hosts.map((host, rank) => hostTest(host, rank, run)) : undefined
    });
    if (passed) {
      // Its log says nothing more. One that is kept bothers nobody.
      void this._server.remove(run.id).catch(() => undefined);
    }
  }

  private _tell(name: string, test: ITest): void {
    if (!this._disposed) {
      this._tests.set(name, test);
      this._changed.emit();
    }
  }

  private _forget(name: string): void {
    this._watched.get(name)?.dispose();
    this._watched.delete(name);
    this._tests.delete(name);
  }
}

/** One host's part: the rank of its place, and what the run's reason says of it. */
function hostTest(host: string, rank: number, run: IRunInfo): IHostTest {
  const state = run.ranks[rank]?.state;
  if (state === 'succeeded') {
    return { host, passed: true };
  }
  const named = (run.reason ?? '').split(/[\s,:;'"]+/).includes(host);
  return { host, passed: named || state === 'failed' || state === 'lost' ? false : null };
}
