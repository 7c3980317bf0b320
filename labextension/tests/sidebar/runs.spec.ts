import { ServerConnection } from '@jupyterlab/services';
import { nullTranslator } from '@jupyterlab/translation';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ApiError } from '../../src/api';
import { RunsModel } from '../../src/model/runs';
import { FakeServer, makeRun } from './fakeserver';

const trans = nullTranslator.load('');
let server: FakeServer;
let model: RunsModel;

beforeEach(() => {
  server = new FakeServer();
  model = new RunsModel({ server, lists: server.lists, trans });
});

afterEach(() => model.dispose());

function fill(count: number): void {
  server.all = Array.from({ length: count }, (_, index) => makeRun(index));
}

/** Switch it on, and wait for its first answer. */
async function activate(): Promise<void> {
  model.active = true;
  await vi.waitFor(() => expect(model.loaded).toBe(true));
}

describe('RunsModel', () => {
  it('shows the newest page first, and older ones when asked', async () => {
    fill(250);
    await activate();
    expect(model.runs.length).toBe(100);
    expect(model.runs[0].name).toBe('In[249]');
    expect(model.total).toBe(250);
    await model.more();
    await Promise.all([model.more(), model.more()]);
    expect(model.runs.map(run => run.created)).toEqual(
      Array.from({ length: 250 }, (_, index) => 249 - index)
    );
    await model.more();
    expect(server.asked.length).toBe(3);
  });

  it('reads one page again while nothing came or went, and all that is shown otherwise', async () => {
    fill(250);
    await activate();
    await model.more();
    server.asked.length = 0;
    await model.refresh();
    expect(server.asked.length).toBe(1);
    expect(model.runs.length).toBe(200);
    server.all = server.all.filter(run => run.created !== 120);
    await model.refresh();
    expect(model.runs.some(run => run.created === 120)).toBe(false);
    expect(model.runs.length).toBe(200);
  });

  it('follows runs that go on, and nothing else, while it is shown', async () => {
    server.all = [makeRun(1), makeRun(2, { state: 'running', ended: null })];
    await activate();
    const id = server.all[1].id;
    expect([...server.listeners.keys()].sort()).toEqual([id, 'runs']);
    server.set(id, { progress: { n: 3, total: 10, desc: '', rate: null } });
    expect(model.find(id)?.progress?.n).toBe(3);
    server.set(id, { state: 'failed', ended: 4 });
    expect(model.find(id)?.state).toBe('failed');
    expect([...server.listeners.keys()]).toEqual(['runs']);
    model.active = false;
    expect(server.listeners.size).toBe(0);
  });

  it('reads the list anew when it changed and when the connection is back', async () => {
    await activate();
    expect(model.runs.length).toBe(0);
    fill(1);
    server.tell('runs', { kind: 'runs' });
    await vi.waitFor(() => expect(model.runs.length).toBe(1));
    fill(2);
    server.tell('runs', { kind: 'connection', online: true });
    await vi.waitFor(() => expect(model.runs.length).toBe(2));
  });

  it('drops the answer to an earlier question', async () => {
    fill(3);
    await activate();
    const first = model.setFilter({ text: '2' });
    const second = model.setFilter({ text: '' });
    await Promise.all([first, second]);
    expect(model.runs.length).toBe(3);
  });

  it('knows nothing of a filter before the server has answered for it', async () => {
    fill(3);
    await activate();
    await model.setFilter({ text: 'nowhere' });
    expect([model.loaded, model.runs.length]).toEqual([true, 0]);
    // Otherwise the sidebar would say that there are no runs yet.
    const answered = model.setFilter({ text: '' });
    expect(model.loaded).toBe(false);
    await answered;
    expect([model.loaded, model.runs.length]).toEqual([true, 3]);
  });

  it('filters on the server', async () => {
    server.all = [
      makeRun(1),
      makeRun(2, { state: 'failed' }),
      makeRun(3, { notebook: '/b.ipynb' })
    ];
    await activate();
    await model.setFilter({ state: 'failed' });
    expect(model.runs.map(run => run.name)).toEqual(['In[2]']);
    await model.setFilter({ state: null, notebook: '/b.ipynb' });
    expect(model.runs.map(run => run.name)).toEqual(['In[3]']);
    expect(model.notebooks).toEqual(['/b.ipynb', '/work/train.ipynb']);
  });

  it('says in one sentence why there is no list, and takes it back', async () => {
    server.down = new ApiError('404 Not Found', 404);
    model.active = true;
    await model.refresh();
    expect(model.problem).toContain('lacks jupyter-dist');
    server.down = new ApiError('403 Forbidden', 403);
    await model.refresh();
    expect(model.problem).toContain('log in again');
    server.down = new ServerConnection.NetworkError(new TypeError('Failed to fetch'));
    await model.refresh();
    expect(model.problem).toContain('does not answer');
    server.down = null;
    await model.refresh();
    expect(model.problem).toBeNull();
  });

  it('knows that a run was asked to stop until it ends', async () => {
    server.all = [makeRun(1, { state: 'running', ended: null })];
    const { id } = server.all[0];
    await activate();
    await model.stop(id);
    expect(model.isStopping(id)).toBe(true);
    server.set(id, { state: 'stopped', ended: 3 });
    expect(model.isStopping(id)).toBe(false);
  });

  it('removes a run from the list, and from the choice', async () => {
    fill(2);
    await activate();
    const [{ id }] = model.runs;
    model.toggleSelected(id);
    expect(await model.remove(id)).toBe(4096);
    expect(model.runs.map(run => run.id)).not.toContain(id);
    expect(model.selected).toEqual([]);
    expect(model.total).toBe(1);
  });

  it('keeps a run that goes on, and the reason', async () => {
    server.all = [makeRun(1, { state: 'running', ended: null })];
    await activate();
    await expect(model.remove(server.all[0].id)).rejects.toThrow('has not ended');
    expect(model.runs.length).toBe(1);
  });
});
