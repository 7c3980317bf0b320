import { Notification as Toast } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EndNotices } from '../../src/endnotices';
import { ClustersModel } from '../../src/model/clusters';
import { NotebookChoices } from '../../src/model/notebooks';
import { RunsModel } from '../../src/model/runs';
import { pillText, StatusPill } from '../../src/statuspill';
import { secondsLeft } from '../../src/run/progresstext';
import type { IDistributed } from '../../src/tokens';
import { FakeServer, makeRun } from './fakeserver';

const trans = nullTranslator.load('');
const alive = { state: 'running', ended: null } as const;

async function world(): Promise<{ server: FakeServer; runs: RunsModel; dist: IDistributed }> {
  const server = new FakeServer();
  server.all = [makeRun(1, alive), makeRun(2, alive), makeRun(3)];
  const runs = new RunsModel({ server, lists: server.lists, trans });
  runs.active = true;
  await vi.waitFor(() => expect(runs.loaded).toBe(true));
  const dist: IDistributed = {
    server,
    trans,
    lists: server.lists,
    runs,
    clusters: new ClustersModel(server, trans),
    notebooks: new NotebookChoices(null),
    settings: null
  };
  return { server, runs, dist };
}

describe('the pill', () => {
  it('says how many runs go on, how far they are and how long they take', async () => {
    const { server, runs, dist } = await world();
    const show = vi.fn();
    const pill = new StatusPill(runs, dist, show);
    const changed = vi.fn();
    pill.shownChanged.connect(changed);
    expect(pill.node.textContent).toBe('2 runs');
    server.set(server.all[0].id, { progress: { n: 90, total: 100, desc: '', rate: 1 } });
    expect(pill.node.textContent).toBe('2 runs');
    server.set(server.all[1].id, { progress: { n: 60, total: 100, desc: '', rate: 0.25 } });
    expect(pill.node.textContent).toBe('2 runs · 60 % · 3 min');
    pill.node.querySelector('button')?.click();
    expect(show).toHaveBeenCalledOnce();
    server.set(server.all[0].id, { state: 'succeeded', ended: 5 });
    expect(pill.node.textContent).toBe('1 run · 60 % · 3 min');
    server.set(server.all[1].id, { state: 'failed', ended: 5 });
    expect([pill.shown, changed.mock.calls.length]).toEqual([false, 1]);
    pill.dispose();
    const rest = (rate: number) => makeRun(1, { progress: { n: 1, total: 1001, desc: '', rate } });
    expect(pillText([rest(100)], trans)).toBe('1 run · 0 % · < 1 min');
    // The header and the sidebar say the same.
    expect(secondsLeft({ n: 1, total: 4, rate: 0.7, desc: '' })).toBe(5);
    expect(secondsLeft({ n: 1, total: null, rate: 0.7, desc: '' })).toBeNull();
    expect(pillText([rest(0.1)], trans)).toBe('1 run · 0 % · 3 h');
    runs.dispose();
  });
});

describe('the end of a run', () => {
  const asked = vi.fn();
  const outside: { text: string; options: unknown }[] = [];

  beforeEach(() => {
    outside.length = 0;
    const fake = class {
      static permission = 'granted';
      static requestPermission = asked;
      constructor(text: string, options: unknown) {
        outside.push({ text, options });
      }
    };
    vi.stubGlobal('Notification', fake);
    vi.spyOn(document, 'hasFocus').mockReturnValue(true);
    vi.spyOn(Toast, 'success').mockReturnValue('1');
    vi.spyOn(Toast, 'error').mockReturnValue('1');
  });

  afterEach(() => {
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
    document.body.replaceChildren();
  });

  it('is told to who looks elsewhere', async () => {
    const { server, runs, dist } = await world();
    const opener = { open: vi.fn(), compare: vi.fn(), table: vi.fn(), menu: vi.fn() };
    new EndNotices({ runs, dist, opener, wanted: () => true });
    server.set(server.all[0].id, { state: 'succeeded', ended: 100 });
    expect(Toast.success).toHaveBeenCalledWith('In[1]: succeeded after 1:39', expect.anything());
    expect(outside).toEqual([]); // the page is in front
    const options = vi.mocked(Toast.success).mock.calls[0][1];
    (options?.actions?.[0].callback as () => void)();
    expect(opener.open).toHaveBeenCalledWith(server.all[0].id);
    vi.spyOn(document, 'hasFocus').mockReturnValue(false);
    server.set(server.all[1].id, { state: 'failed', ended: 100, reason: 'rank 1 failed' });
    expect(vi.mocked(Toast.error).mock.calls[0][0]).toBe('In[2]: failed after 1:38\nrank 1 failed');
    expect(outside).toEqual([
      {
        text: 'In[2]: failed after 1:38',
        options: { body: 'rank 1 failed', tag: `jupyter-dist-${server.all[1].id}` }
      }
    ]);
    runs.dispose();
  });

  it('is not told of what is in sight, was stopped, was short, or is not wanted', async () => {
    const { server, runs, dist } = await world();
    const opener = { open: vi.fn(), compare: vi.fn(), table: vi.fn(), menu: vi.fn() };
    let wanted = true;
    new EndNotices({ runs, dist, opener, wanted: () => wanted });
    const seen = document.createElement('div');
    seen.className = 'jpd-run';
    seen.dataset.run = server.all[0].id;
    vi.spyOn(seen, 'getBoundingClientRect').mockReturnValue(new DOMRect(0, 0, 100, 100));
    document.body.append(seen);
    server.set(server.all[0].id, { state: 'succeeded', ended: 100 });
    server.set(server.all[0].id, alive);
    server.set(server.all[0].id, { state: 'stopped', ended: 100 });
    server.set(server.all[1].id, { state: 'succeeded', ended: 4 });
    server.set(server.all[1].id, alive);
    wanted = false;
    server.set(server.all[1].id, { state: 'succeeded', ended: 100 });
    expect(vi.mocked(Toast.success).mock.calls).toEqual([]);
    runs.dispose();
  });
});
