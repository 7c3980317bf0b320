// How often the server is asked for lists of runs, however many parts of the page show them.
import { nullTranslator } from '@jupyterlab/translation';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ClustersModel } from '../../src/model/clusters';
import { NotebookChoices } from '../../src/model/notebooks';
import { RunsModel } from '../../src/model/runs';
import { StatusPill } from '../../src/statuspill';
import { english } from '../../src/run/trans';
import { RunningRuns } from '../../src/running';
import { RunsTable } from '../../src/table/view';
import { FakeServer, makeRun } from './fakeserver';

const trans = nullTranslator.load('');
const ANSWER_MS = 100;
const opener = { open: vi.fn(), table: vi.fn(), compare: vi.fn(), menu: vi.fn() };
let server: FakeServer;
let opened: { dispose(): void }[] = [];
let underWay = 0;
let most = 0;

beforeEach(() => {
  vi.useFakeTimers();
  server = new FakeServer();
  server.all = [...Array(250).keys()].map(index => makeRun(index));
  server.all[249] = makeRun(249, { state: 'running', ended: null });
  underWay = most = 0;
  const answer = server.runs.bind(server);
  server.runs = async query => {
    most = Math.max(most, ++underWay);
    await new Promise(done => setTimeout(done, ANSWER_MS));
    underWay--;
    return answer(query);
  };
});

afterEach(() => {
  opened.splice(0).forEach(one => one.dispose());
  server.lists.dispose();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** How many requests there are in so many seconds. */
async function askedIn(seconds: number): Promise<number> {
  const before = server.asked.length;
  await vi.advanceTimersByTimeAsync(1000 * seconds);
  return server.asked.length - before;
}

function hide(hidden: boolean): void {
  vi.spyOn(document, 'hidden', 'get').mockReturnValue(hidden);
  document.dispatchEvent(new Event('visibilitychange'));
}

/** The sidebar, the table, and what the status bar and the panel of running sessions show. */
function open() {
  const { lists } = server;
  const sidebar = new RunsModel({ server, lists, trans });
  const clusters = new ClustersModel(server, trans);
  const notebooks = new NotebookChoices(null);
  const dist = { server, lists, trans, runs: sidebar, clusters, notebooks, settings: null };
  const { model } = new RunningRuns(dist, opener);
  const pill = new StatusPill(model, dist, vi.fn());
  sidebar.active = true;
  const table = new RunsTable({ server, lists, trans: english, open: vi.fn(), compare: vi.fn() });
  opened = [sidebar, model, pill, table, clusters, notebooks];
  return { sidebar, pill, table };
}

describe('with the sidebar, the table and the status bar open the server is asked', () => {
  it('once for all of them, one request at a time', async () => {
    const { sidebar, pill, table } = open();
    expect(await askedIn(5)).toBe(1);
    expect(sidebar.runs.length).toBe(100);
    expect(pill.node.textContent).toBe('1 run');
    expect(table.node.textContent).toContain('250 runs');
    server.all = [...server.all, makeRun(250, { state: 'running', ended: null })];
    server.tell('runs', { kind: 'runs' });
    expect(await askedIn(5)).toBe(1);
    expect([sidebar.total, pill.node.textContent]).toEqual([251, '2 runs']);
    expect(table.node.textContent).toContain('251 runs');
    expect(await askedIn(60)).toBe(6);
    const flood = setInterval(() => server.tell('runs', { kind: 'runs' }), 50);
    expect(await askedIn(11)).toBe(10);
    clearInterval(flood);
    expect(most).toBe(1);
  });

  it('less often when the sidebar is closed, and only about changes while the page is hidden', async () => {
    const { sidebar, pill } = open();
    await askedIn(5);
    sidebar.active = false;
    expect(await askedIn(120)).toBe(2);
    hide(true);
    expect(await askedIn(600)).toBe(0);
    server.all = server.all.map(run => ({ ...run, state: 'succeeded', ended: 9 }));
    server.tell('runs', { kind: 'runs' });
    expect(await askedIn(2)).toBe(1);
    expect(pill.shown).toBe(false);
    await askedIn(600);
    hide(false);
    expect(await askedIn(2)).toBe(1);
  });

  it('nothing by a part that opens: the last answer is there at once', async () => {
    const { sidebar } = open();
    await askedIn(5);
    sidebar.active = false;
    await askedIn(2);
    const other = new RunsModel({ server, lists: server.lists, trans });
    other.active = true;
    expect(other.runs.length).toBe(100);
    expect(await askedIn(2)).toBe(0);
    other.dispose();
  });

  it('apart for another filter, and the answer goes to who asked', async () => {
    const { sidebar, pill, table } = open();
    await askedIn(5);
    const filtered = sidebar.setFilter({ text: 'In[1' });
    expect(await askedIn(2)).toBe(1);
    await filtered;
    expect(sidebar.total).toBe(111);
    expect(pill.node.textContent).toBe('1 run');
    expect(table.node.textContent).toContain('250 runs');
    expect(most).toBe(1);
  });
});

describe('a list', () => {
  it('has what a run has reported while an older answer was under way', async () => {
    const { sidebar } = open();
    await askedIn(5);
    const { id } = server.all[249];
    const old = server.all;
    void sidebar.refresh();
    await vi.advanceTimersByTimeAsync(ANSWER_MS / 2);
    server.set(id, { state: 'succeeded', ended: 9 });
    server.all = old;
    await askedIn(1);
    expect(sidebar.find(id)?.state).toBe('succeeded');
  });

  it('is asked for less and less often while the server is down', async () => {
    const { table } = open();
    await askedIn(5);
    server.down = new TypeError('Failed to fetch');
    expect(await askedIn(120)).toBeLessThanOrEqual(6);
    expect(table.node.textContent).toContain('The runs cannot be listed');
    server.down = null;
    await askedIn(60);
    expect(table.node.textContent).not.toContain('The runs cannot be listed');
  });
});
