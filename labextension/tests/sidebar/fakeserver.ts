/** A server that keeps its runs and clusters in memory, and says no where the real one would. */
import { ApiError } from '../../src/api';
import type { IAbout, IEnvironment } from '../../src/answers/runs';
import type { ISessionInfo } from '../../src/answers/sessions';
import type {
  IAboutChange,
  IBackend,
  ICleaned,
  ICluster,
  IClusterData,
  IClusterList,
  IFormMeaning,
  IRunPage,
  IRunQuery,
  IServer,
  LaunchVerb
} from '../../src/model/server';
import { RunLists } from '../../src/model/runlists';
import {
  ended,
  type IDisposable,
  type IRunInfo,
  type RunChange,
  type State
} from '../../src/run/source';

export function makeRun(index: number, change: Partial<IRunInfo> = {}): IRunInfo {
  const id = `20260101-${String(index).padStart(6, '0')}-abcd`;
  return {
    id,
    name: `In[${index}]`,
    backend: 'local',
    world_size: 2,
    state: 'succeeded',
    attempt: 0,
    created: index,
    started: index,
    ended: index + 1,
    reason: null,
    notebook: '/work/train.ipynb',
    label: `In[${index}]`,
    warm: false,
    stall: null,
    progress: null,
    host_time: Date.now() / 1000,
    max_restarts: 0,
    path: `/runs/${id}`,
    ranks: [],
    progress_by_rank: [],
    notes: [],
    source: '',
    ...change
  };
}

export const LOCAL: IBackend = {
  name: 'local',
  available: true,
  detail: { python: '3.11.7', cores: 2, gpus: 0 },
  install: null,
  problem: null,
  schema: {
    properties: {
      gpus_per_worker: {
        anyOf: [{ type: 'integer', minimum: 0 }, { type: 'null' }],
        default: null,
        title: 'GPUs per worker',
        description: 'GPUs that each rank sees.'
      }
    }
  },
  run_schema: {
    properties: {
      np: {
        anyOf: [{ type: 'integer', minimum: 1, maximum: 65536 }, { type: 'null' }],
        default: null,
        flags: ['-np', '--np'],
        title: 'Workers'
      },
      env: {
        type: 'object',
        additionalProperties: { type: 'string' },
        title: 'Environment',
        secrets: true
      },
      cold: { type: 'boolean', default: false, title: 'Cold start' }
    }
  }
};

export const RAY: IBackend = {
  name: 'ray',
  available: false,
  detail: {},
  install: 'pip install "jupyter-dist[ray]"',
  install_cell: '%pip install "jupyter-dist[ray]"',
  problem: "backend 'ray' needs Ray",
  schema: null,
  run_schema: null
};

export class FakeServer implements IServer {
  all: IRunInfo[] = [];
  saved: ICluster[] = [];
  sessions: ISessionInfo[] = [];
  down: Error | null = null;
  /** What is wrong with any form. */
  problems: IFormMeaning['problems'] = [];
  readonly asked: string[] = [];
  /** What asks this server for lists of runs. */
  readonly lists = new RunLists(this);
  readonly listeners = new Map<string, Set<(change: RunChange) => void>>();

  tell(subject: string, change: RunChange): void {
    this.listeners.get(subject)?.forEach(listener => listener(change));
  }

  set(id: string, change: Partial<IRunInfo>): void {
    this.all = this.all.map(run => (run.id === id ? { ...run, ...change } : run));
    this.tell(id, { kind: 'run', run: this._find(id) });
  }

  async runs(query: IRunQuery): Promise<IRunPage> {
    this._ask(`runs ${query.before ?? ''}`);
    const found = [...this.all]
      .sort((a, b) => b.id.localeCompare(a.id))
      .filter(run => !query.state || run.state === query.state)
      .filter(run => !query.notebook || run.notebook === query.notebook)
      .filter(run => !query.text || run.name.includes(query.text));
    const older = found.filter(run => !query.before || run.id < query.before);
    const notebooks = this.all.flatMap(run => run.notebook ?? []);
    return {
      runs: older.slice(0, query.limit),
      total: found.length,
      notebooks: [...new Set(notebooks)],
      root: '/runs',
      hint: this.all.length ? null : 'This server looks for runs in /runs.',
      sessions: this.sessions
    };
  }

  async run(id: string): Promise<IRunInfo> {
    this._ask(`run ${id}`);
    return this._find(id);
  }

  async stop(id: string, kill: boolean): Promise<void> {
    this._ask(`stop ${id} ${kill}`);
  }

  async remove(id: string): Promise<{ freed_bytes: number }> {
    this._ask(`remove ${id}`);
    if (!ended(this._find(id).state)) {
      throw new ApiError(`${id} has not ended`, 409, { message: `${id} has not ended` });
    }
    this.all = this.all.filter(run => run.id !== id);
    return { freed_bytes: 4096 };
  }

  async about(id: string, change: IAboutChange): Promise<IAbout> {
    this._ask(`about ${id} ${JSON.stringify(change)}`);
    this.set(id, { ...change, named: change.name !== undefined } as Partial<IRunInfo>);
    return { id, name: '', tags: [], note: '', ...change };
  }

  async environment(): Promise<IEnvironment> {
    return {};
  }

  async diskSize(): Promise<number> {
    return 4096;
  }

  async clean(days: number): Promise<ICleaned> {
    this._ask(`clean ${days}`);
    return { removed: [], freed_bytes: 0, skipped: false };
  }

  async backends(): Promise<IBackend[]> {
    this._ask('backends');
    return [LOCAL, RAY];
  }

  async clusters(): Promise<IClusterList> {
    this._ask('clusters');
    return { clusters: this.saved, path: '/etc/clusters.toml', problem: null };
  }

  async saveCluster(name: string, data: IClusterData, oldName: string | null): Promise<void> {
    this._ask(`save ${name} ${JSON.stringify(data)}`);
    if (typeof data.options.np === 'number' && data.options.np < 1) {
      const message = `np needs a whole number of at least 1, got ${data.options.np}`;
      throw new ApiError(message, 400, { message });
    }
    const cluster = { name, ...data, problem: null };
    const at = this.saved.findIndex(one => one.name === (oldName ?? name));
    this.saved =
      at < 0 ? [...this.saved, cluster] : this.saved.map((one, i) => (i === at ? cluster : one));
  }

  async meaning(backend: string, options: Record<string, unknown>): Promise<IFormMeaning> {
    this._ask(`meaning ${backend} ${JSON.stringify(options)}`);
    if (typeof options.np === 'number' && options.np < 1) {
      const text = `Needs a whole number of at least 1, got ${options.np}`;
      return { line: null, note: null, problems: [{ field: 'np', text }] };
    }
    const words = Object.entries(options).map(([name, value]) => ` --${name} ${String(value)}`);
    const line = `%%distribute --backend ${backend}${words.join('')}`;
    return { line, note: null, problems: this.problems };
  }

  async deleteCluster(name: string): Promise<void> {
    this.saved = this.saved.filter(one => one.name !== name);
  }

  async duplicateCluster(name: string): Promise<string> {
    const found = this.saved.find(one => one.name === name);
    if (!found) {
      throw new ApiError(`no cluster '${name}'`, 404, { message: `no cluster '${name}'` });
    }
    this.saved = [...this.saved, { ...found, name: `${name}-2` }];
    return `${name}-2`;
  }

  async testCluster(name: string): Promise<{ run_id: string; hosts: string[] }> {
    this._ask(`test ${name}`);
    const run = makeRun(900_000, { state: 'running', ended: null });
    this.all = [...this.all, run];
    return { run_id: run.id, hosts: [] };
  }

  async session(name: string, action: 'close' | 'restart'): Promise<void> {
    this._ask(`${action} ${name}`);
    if (action === 'close') {
      this.sessions = this.sessions.filter(one => one.name !== name);
    }
  }

  async launchRay(verb: LaunchVerb, file: string): Promise<string> {
    this._ask(`${verb} ${file}`);
    const run = makeRun(900_001, { state: 'running', ended: null });
    this.all = [...this.all, run];
    return run.id;
  }

  watch(subject: string, listener: (change: RunChange) => void): IDisposable {
    const known = this.listeners.get(subject) ?? new Set();
    this.listeners.set(subject, known.add(listener));
    return {
      dispose: () => {
        known.delete(listener);
        if (!known.size) {
          this.listeners.delete(subject);
        }
      }
    };
  }

  private _find(id: string): IRunInfo {
    const run = this.all.find(one => one.id === id);
    if (!run) {
      throw new ApiError(`no run ${id}`, 404, { message: `no run ${id}` });
    }
    return run;
  }

  private _ask(what: string): void {
    this.asked.push(what);
    if (this.down) {
      throw this.down;
    }
  }
}

export const STATES: State[] = [
  'pending',
  'running',
  'unwatched',
  'succeeded',
  'failed',
  'stopped',
  'lost'
];
