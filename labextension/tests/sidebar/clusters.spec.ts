import { nullTranslator } from '@jupyterlab/translation';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { ApiError } from '../../src/api';
import { ClustersModel } from '../../src/model/clusters';
import { describeBackend, describeCluster, gpusInUse } from '../../src/sidebar/clusters';
import { describeSite, siteOf } from '../../src/sidebar/sites';
import { draftOf, fieldsOf, optionsOf } from '../../src/sidebar/schema';
import { FakeServer, LOCAL } from './fakeserver';

const trans = nullTranslator.load('');
let server: FakeServer;
let model: ClustersModel;

beforeEach(() => {
  server = new FakeServer();
  model = new ClustersModel(server, trans);
});

describe('ClustersModel', () => {
  it('saves, renames, duplicates and deletes', async () => {
    await model.save('a', { backend: 'local', options: { np: 2 } }, null);
    await model.save('b', { backend: 'local', options: { np: 3 } }, 'a');
    expect(model.clusters.map(one => [one.name, one.options.np])).toEqual([['b', 3]]);
    expect(await model.duplicate('b')).toBe('b-2');
    await model.remove('b');
    expect(model.clusters.map(one => one.name)).toEqual(['b-2']);
    expect(model.path).toBe('/etc/clusters.toml');
  });

  it('is outdated when a notebook of another folder is in front', async () => {
    let folder = '/a';
    model = new ClustersModel(server, trans, () => folder);
    expect(model.outdated).toBe(false); // nothing has been read: whoever shows it reads
    await model.refresh();
    expect(model.outdated).toBe(false);
    folder = '/b';
    expect(model.outdated).toBe(true);
    await model.refresh();
    expect(model.outdated).toBe(false);
  });

  it('keeps what it has when the server says no', async () => {
    await model.refresh();
    server.down = new ApiError('500 Oops', 500);
    await model.refresh();
    expect(model.problem).toBe('500 Oops');
    expect(model.backends.length).toBe(2);
  });

  it('tells how a test goes, from its start to its end', async () => {
    const running = model.startTest('local');
    expect(model.test('local')?.state).toBe('running');
    await running;
    const id = model.test('local')?.run ?? '';
    server.set(id, { state: 'succeeded', created: 10, ended: 12.5 });
    expect(model.test('local')).toMatchObject({
      state: 'passed',
      text: 'Works: answered in 2.5 s'
    });
    expect(server.listeners.size).toBe(0);
    // The run of a test that has passed is no longer among the runs.
    expect(server.asked).toContain(`remove ${id}`);
    model.dismissTest('local');
    expect(model.test('local')).toBeUndefined();
  });

  it('reads the clusters anew when a run that launches one has ended', async () => {
    const id = await model.launch('up', 'two.yaml');
    expect(server.asked).toEqual(['up two.yaml']);
    const address = { address: 'ray://10.0.0.2:10001' };
    const file = { launched_from: '/home/ada/two.yaml' };
    server.saved = [{ name: 'two', backend: 'ray', options: address, problem: null, ...file }];
    expect(model.clusters).toEqual([]);
    server.set(id, { state: 'succeeded', ended: 2 });
    await vi.waitFor(() => expect(model.clusters.map(one => one.name)).toEqual(['two']));
    expect(describeCluster(model.clusters[0], trans)).toBe(
      'ray · address ray://10.0.0.2:10001 · launched from two.yaml'
    );
    expect(server.listeners.size).toBe(0);
    server.down = new ApiError('no such file', 400);
    await expect(model.launch('up', 'none.yaml')).rejects.toThrow('no such file');
  });

  it('says why a test failed', async () => {
    await model.startTest('local');
    const id = model.test('local')?.run ?? '';
    server.set(id, { state: 'failed', ended: 1, reason: 'rank 0 was killed' });
    expect(model.test('local')).toMatchObject({ state: 'failed', text: 'rank 0 was killed' });
    server.down = new ApiError('no such engine', 400, { message: 'no such engine' });
    await model.startTest('local');
    expect(model.test('local')).toMatchObject({
      state: 'failed',
      text: 'no such engine',
      run: null
    });
  });
});

describe('the form', () => {
  const fields = [...fieldsOf(LOCAL.run_schema), ...fieldsOf(LOCAL.schema)];

  it('is made from the schema', () => {
    expect(fields.map(({ name, kind, title }) => [name, kind, title])).toEqual([
      ['np', 'integer', 'Workers'],
      ['env', 'pairs', 'Environment'],
      ['cold', 'switch', 'Cold start'],
      ['gpus_per_worker', 'integer', 'GPUs per worker']
    ]);
    expect(fields[0]).toMatchObject({ minimum: 1, maximum: 65536, required: false });
    expect(fields[3].help).toBe('GPUs that each rank sees.');
  });

  it('gives back what it was given', () => {
    const options = { np: 4, env: { A: 'b=c', D: '' }, cold: true, gpus_per_worker: 0 };
    expect(optionsOf(fields, draftOf(fields, options))).toEqual(options);
    expect(optionsOf(fields, draftOf(fields, {}))).toEqual({});
  });

  it('leaves what cannot be read to the server', () => {
    const draft = { ...draftOf(fields, {}), np: 'four', env: 'no value' };
    expect(optionsOf(fields, draft)).toEqual({ np: 'four', env: 'no value' });
  });

  it('follows references, enums, lists and switches that are on by default', () => {
    const [mode, hosts, warm] = fieldsOf({
      $defs: { Mode: { enum: ['a', 'b'], type: 'string', title: 'Mode' } },
      properties: {
        mode: { $ref: '#/$defs/Mode', default: 'a', description: 'Which one' },
        hosts: { type: 'array', items: { type: 'string' } },
        warm: { type: 'boolean', default: true }
      },
      required: ['hosts']
    });
    expect(mode).toMatchObject({ kind: 'choice', choices: ['a', 'b'], help: 'Which one' });
    expect(hosts).toMatchObject({ kind: 'list', required: true, title: 'hosts' });
    const options = { hosts: ['x', 'y z'], warm: false };
    expect(optionsOf([mode, hosts, warm], draftOf([mode, hosts, warm], options))).toEqual(options);
  });
});

describe('descriptions', () => {
  it('tell what was found', () => {
    expect(describeBackend(LOCAL, trans)).toBe('2 cores · no GPU · Python 3.11.7');
    expect(
      describeBackend({ ...LOCAL, detail: { gpus: ['A', 'B'], address: 'ray://x' } }, trans)
    ).toBe('2 GPUs · address ray://x');
  });

  it('tell whose the GPUs are in a line of its own', () => {
    const told = 'GPUs 0-3 are held by run 20261120-a of train.ipynb (user anna); 4 are free';
    const busy = { ...LOCAL, detail: { gpus: 8, gpus_in_use: told } };
    expect(describeBackend(busy, trans)).toBe('8 GPUs');
    expect(gpusInUse(busy)).toBe(told);
    expect(gpusInUse(LOCAL)).toBeNull();
    expect(gpusInUse(undefined)).toBeNull();
  });

  it('tell what a site has, free and in total', () => {
    const site = { name: '10.0.0.2:6379', options: { address: '10.0.0.2:6379' }, problem: null };
    const has = {
      ...site,
      nodes: 2,
      cpus: { free: 3.5, total: 8 },
      gpus: { free: 1, total: 2 },
      gpu_types: ['A100'],
      memory_bytes: { free: 5.2e9, total: 8e9 }
    };
    expect(describeSite(has, trans)).toBe(
      '2 nodes · 3.5 of 8 CPUs free · 1 of 2 GPUs free (A100) · 5.20 GB of 8.00 GB free'
    );
    expect(describeSite({ ...has, gpus: { free: 0, total: 0 } }, trans)).toContain(' · no GPU · ');
    expect(describeSite({ ...has, problem: 'nobody answers' }, trans)).toBe('nobody answers');
    expect(describeSite({ ...site, told: 'two tents' }, trans)).toBe('two tents');
    const backend = { ...LOCAL, name: 'ray', sites: [{ ...site, options: {} }, site] };
    const cluster = {
      name: 'a',
      backend: 'ray',
      problem: null,
      options: { np: 2, ...site.options }
    };
    expect(siteOf(cluster, backend)).toBe(site);
    expect(siteOf({ ...cluster, options: { np: 2 } }, backend)).toBeUndefined();
    expect(siteOf(cluster, LOCAL)).toBeUndefined();
  });

  it('do not show the values of variables', () => {
    const cluster = { name: 'a', backend: 'local', problem: null };
    const options = { np: 4, env: { TOKEN: 'secret' }, max_restarts: 2 };
    expect(describeCluster({ ...cluster, options }, trans)).toBe(
      'local × 4 · env · max restarts 2'
    );
  });
});
