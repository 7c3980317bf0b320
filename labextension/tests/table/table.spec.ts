import { StateDB } from '@jupyterlab/statedb';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { over } from '../../src/compare/axis';
import { diffLines, folded } from '../../src/compare/codediff';
import { differences } from '../../src/compare/differences';
import { contentsPath } from '../../src/cellactions';
import { runState } from '../../src/run/context';
import type { IRunSummary } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { columnsOf, grouped, ofGroup, sorted, usual } from '../../src/table/columns';
import { type ITableState, TableStore } from '../../src/table/state';
import { RunsTable } from '../../src/table/view';
import { FakeServer, makeRun } from '../sidebar/fakeserver';

const told = (index: number) =>
  makeRun(index, {
    parameters: { lr: index / 10, model: index % 2 ? 'vit' : 'resnet', seed: 7 },
    final: { loss: 10 - index },
    extremes: { loss: [index, 20] }
  });

describe('columns', () => {
  const runs = [1, 2, 3].map(told);
  const columns = columnsOf(runs, english);
  const column = (id: string) => columns.find(one => one.id === id)!;

  it('shows the parameters that differ, and the metrics, until somebody chooses', () => {
    const ids = usual(columns, runs);
    expect(ids).toEqual(expect.arrayContaining(['name', 'notebook', 'param:lr', 'param:model']));
    expect(ids).toContain('metric:loss');
    expect(ids).not.toContain('param:seed');
  });

  it('sorts numbers as numbers, and puts what lacks a value last either way', () => {
    const more = [...runs, makeRun(9)];
    const names = (down: boolean) => sorted(more, column('metric:loss'), down).map(run => run.name);
    expect(names(false)).toEqual(['In[3]', 'In[2]', 'In[1]', 'In[9]']);
    expect(names(true)).toEqual(['In[1]', 'In[2]', 'In[3]', 'In[9]']);
  });

  it('names a stalled run, and a tuning run without ranks', () => {
    const text = (run: IRunSummary) =>
      columnsOf([run], english)
        .find(one => one.id === 'where')!
        .text(run);
    expect(text({ ...runs[0], backend: 'local', world_size: 0 })).toBe('local');
    expect(text({ ...runs[0], backend: 'local', world_size: 2 })).toBe('local × 2');
    const stalled = { ...runs[0], state: 'running', stall: { since: 1, noticed: 2 } } as const;
    expect(runState(stalled, english)).toBe('Stalled');
  });

  it('has the extremes of metrics to choose, and a group for each tag', () => {
    expect(column('min:loss').text(runs[1])).toBe('2');
    expect(column('max:loss').label).toBe('loss (max)');
    expect(usual(columns, runs)).not.toContain('min:loss');
    const tagged = [
      { ...runs[0], tags: ['a', 'b'] },
      { ...runs[1], tags: ['b'] }
    ];
    const groups = grouped([...tagged, runs[2]], column('tags'));
    expect(groups.map(one => [one.key, one.runs.length])).toEqual([
      ['a', 1],
      ['b', 2],
      ['', 1]
    ]);
  });

  it('has the values of any name, and none of a run that lacks it', () => {
    const names = ['constructor', '__proto__', 'toString'];
    const of = (value: number) => Object.fromEntries(names.map(name => [name, value]));
    const bare = makeRun(2, { parameters: {}, final: {} });
    const odd = [makeRun(1, { parameters: of(1), final: of(2) }), bare];
    const all = columnsOf(odd, english).filter(one => one.kind !== 'run');
    expect(all.map(one => [one.id, ...odd.map(run => one.text(run))])).toEqual(
      ['param', 'metric'].flatMap((kind, at) =>
        names.map(name => [`${kind}:${name}`, String(at + 1), ''])
      )
    );
    const rows = differences(
      odd.map(run => ({ run, environment: {} })),
      english
    );
    expect(rows.filter(row => names.includes(row.name)).map(row => row.values.join())).toEqual([
      ...Array(3).fill('1,'),
      ...Array(3).fill('2,')
    ]);
  });

  it('says of a group what all have, else the mean', () => {
    const [vit] = grouped(runs, column('param:model'));
    expect([vit.key, vit.runs.length]).toEqual(['vit', 2]);
    const said = ['param:seed', 'param:lr', 'metric:loss', 'cell'].map(id =>
      ofGroup(column(id), vit.runs, english)
    );
    expect(said).toEqual(['7', '2 values', 'mean 8 (7 – 9)', '']);
  });
});

describe('RunsTable', () => {
  let server: FakeServer;
  let table: RunsTable;
  const did = vi.fn();
  const all = (selector: string) => [...table.node.querySelectorAll<HTMLElement>(selector)];
  const named = (name: string) => table.node.querySelector<HTMLElement>(`[aria-label="${name}"]`)!;
  const rows = () => all('tbody tr[data-id]');

  async function show(
    count: number,
    kept?: { state: ITableState; store: TableStore }
  ): Promise<void> {
    server.all = Array.from({ length: count }, (_, index) => told(index));
    table = new RunsTable({
      server,
      lists: server.lists,
      trans: english,
      ...kept,
      open: id => did('open', id),
      compare: ids => did('compare', ids.length),
      menu: (runs, at, rename) => {
        did('menu', ...runs.map(run => run.name), at.clientX);
        rename();
      }
    });
    document.body.appendChild(table.node);
    await vi.waitFor(() => expect(rows().length).toBeGreaterThan(0));
  }

  /** Choose an item of the menu of columns. */
  const pick = (label: string) => {
    const { menu, node } = table.columnMenu;
    if (!menu.isAttached) {
      node.click();
    }
    menu.activeItem = menu.items.find(one => one.label === label)!;
    menu.triggerActiveItem();
  };

  beforeEach(() => {
    localStorage.clear();
    did.mockReset();
    server = new FakeServer();
  });
  afterEach(() => table.dispose());

  it('draws the rows in sight only', async () => {
    await show(500);
    expect(rows().length).toBeLessThan(60);
    expect(table.node.textContent).toContain('500 runs');
  });

  it('sorts by a click, once more the other way, and groups', async () => {
    await show(5);
    const lr = () => all('th[data-id="param:lr"] button')[0];
    lr().click();
    expect(rows()[0].textContent).toContain('In[0]');
    lr().click();
    expect(rows()[0].textContent).toContain('In[4]');
    expect(all('th[data-id="param:lr"]')[0].getAttribute('aria-sort')).toBe('descending');
    lr().click();
    expect(all('th[data-id="param:lr"]')[0].getAttribute('aria-sort')).toBe('none');
    lr().click();
    lr().click();
    const group = named('Group runs by') as HTMLSelectElement;
    group.value = 'param:model';
    group.dispatchEvent(new Event('change'));
    expect(all('.jpd-runs-group th').map(cell => cell.textContent)).toEqual([
      'resnet (3)',
      'vit (2)'
    ]);
    all('.jpd-runs-group button')[0].click();
    expect(rows().length).toBe(4);
  });

  it('compares what is chosen, and opens a run by its name', async () => {
    await show(3);
    const compare = all('.jpd-runs-bar button').find(one => one.textContent === 'Compare')!;
    expect((compare as HTMLButtonElement).disabled).toBe(true);
    named('Select In[1]').click();
    named('Select In[2]').click();
    compare.click();
    all('.jpd-runs-name')[0].click();
    expect(did.mock.calls).toEqual([
      ['compare', 2],
      ['open', server.all[2].id]
    ]);
  });

  it('is read while runs go on, however often they change, and durations tick', async () => {
    vi.useFakeTimers();
    await show(2);
    const { id } = server.all[1];
    server.set(id, { state: 'running', ended: null, started: 1000, host_time: 1010.5 });
    const asked = () => server.asked.filter(one => one.startsWith('runs')).length;
    const before = asked();
    for (let change = 0; change < 12; change++) {
      server.tell('runs', { kind: 'runs' });
      await vi.advanceTimersByTimeAsync(500);
    }
    expect([4, 5, 6, 7]).toContain(asked() - before);
    const took = () =>
      table.node.querySelector(`tr[data-id="${id}"] td:nth-child(${column})`)?.textContent;
    const heads = all('thead th, thead td');
    const column = heads.findIndex(one => one.dataset.id === 'duration') + 1;
    expect(took()).toMatch(/^1\d s …$/);
    const shown = took();
    await vi.advanceTimersByTimeAsync(3000);
    expect(took()).not.toBe(shown);
    vi.useRealTimers();
  });

  it('keeps columns and focus while a filter is typed, and says when nothing matches', async () => {
    await show(3);
    const filter = named('Filter runs by text') as HTMLInputElement;
    const heads = () => all('th[data-id]').map(one => one.dataset.id);
    const before = heads();
    named('Select In[1]').focus();
    await table.refresh();
    expect(document.activeElement).toBe(named('Select In[1]'));
    filter.value = 'nothing has this';
    filter.dispatchEvent(new Event('input'));
    await vi.waitFor(() => expect(rows().length).toBe(0));
    expect(heads()).toEqual(before);
    const [again] = all('.jpd-runs-empty button');
    expect(all('.jpd-runs-empty')[0].textContent).toContain('No run matches this filter');
    again.click();
    await vi.waitFor(() => expect(rows().length).toBe(3));
  });

  it('is the next time as it was left in this workspace, and as an earlier version left it', async () => {
    const old = { columns: null, sort: 'param:lr', down: true, group: 'param:model' };
    localStorage.setItem('jupyter-dist:runs-table', JSON.stringify(old));
    const workspace = new StateDB();
    const open = async (db: StateDB) => {
      const store = new TableStore(db);
      await show(3, { store, state: await store.read() });
    };
    const sorted = () => all('th[aria-sort=descending]').map(one => one.dataset.id);
    const group = () => named('Group runs by') as HTMLSelectElement;
    await open(workspace);
    expect([sorted(), group().value]).toEqual([['param:lr'], 'param:model']);
    pick('seed');
    const filter = named('Filter runs by text') as HTMLInputElement;
    filter.value = 'In[1';
    filter.dispatchEvent(new Event('input'));
    await vi.waitFor(() => expect(table.node.textContent).toContain('1 run'));
    table.dispose();
    await open(workspace);
    await vi.waitFor(() => expect(table.node.textContent).toContain('1 run'));
    expect([sorted(), group().value]).toEqual([['param:lr'], 'param:model']);
    expect((named('Filter runs by text') as HTMLInputElement).value).toBe('In[1');
    expect(all('th[data-id="param:seed"]').length).toBe(1);
    table.dispose();
    await open(new StateDB());
    expect([sorted(), group().value, rows().length]).toEqual([[], '', 3]);
  });

  it('has a menu of columns, which stays open at what was chosen', async () => {
    await show(3);
    const heads = () => all('th[data-id]').map(one => one.dataset.id);
    const before = heads();
    const { menu, node } = table.columnMenu;
    pick('seed');
    expect(heads().filter(id => !before.includes(id))).toEqual(['param:seed']);
    expect([menu.isAttached, menu.activeItem?.label]).toEqual([true, 'seed']);
    expect(menu.activeItem?.isToggled).toBe(true);
    pick('seed');
    expect(heads()).toEqual(before);
    pick('loss (min)');
    expect(heads()).toContain('min:loss');
    pick('Default columns');
    expect([heads(), menu.isAttached]).toEqual([before, false]);
    expect(document.activeElement).toBe(node);
  });

  it('has a menu for the run under the pointer, or for all that are selected', async () => {
    await show(3);
    const menu = (name: string) => {
      const row = rows().find(one => one.textContent?.includes(name));
      const event = new MouseEvent('contextmenu', { bubbles: true, cancelable: true, clientX: 7 });
      row?.dispatchEvent(event);
      return event.defaultPrevented;
    };
    expect(menu('In[1]')).toBe(true);
    expect(did.mock.lastCall).toEqual(['menu', 'In[1]', 7]);
    expect(named('Name of the run')).not.toBeNull();
    named('Name of the run').dispatchEvent(
      new KeyboardEvent('keydown', { key: 'Escape', bubbles: true })
    );
    await vi.waitFor(() => expect(named('Name of the run')).toBeNull());
    named('Select In[2]').click();
    named('Select In[0]').click();
    menu('In[2]');
    expect(did.mock.lastCall).toEqual(['menu', 'In[2]', 'In[0]', 7]);
  });

  it('keeps nothing until somebody changes something, also if it could not be read', async () => {
    const db = { fetch: () => Promise.reject(new Error('away')), save: vi.fn(async () => {}) };
    localStorage.setItem('jupyter-dist:runs-table', JSON.stringify({ sort: 'name' }));
    const store = new TableStore(db as unknown as StateDB);
    await show(3, { store, state: await store.read() });
    expect(db.save).not.toHaveBeenCalled();
    pick('seed');
    expect(db.save).toHaveBeenCalledOnce();
    localStorage.clear();
  });

  it('closes the menu of columns with a second click on its button', async () => {
    await show(3);
    const { menu, node } = table.columnMenu;
    const click = () => {
      node.dispatchEvent(new Event('pointerdown', { bubbles: true }));
      node.click();
      return [menu.isAttached, node.getAttribute('aria-expanded')];
    };
    expect(node.getAttribute('aria-expanded')).toBe('false');
    expect(click()).toEqual([true, 'true']);
    expect(click()).toEqual([false, 'false']);
    expect(click()).toEqual([true, 'true']);
    menu.close();
    expect(node.getAttribute('aria-expanded')).toBe('false');
  });

  it('leaves what an earlier version has kept until it is kept elsewhere', async () => {
    const old = JSON.stringify({ sort: 'name', down: true });
    localStorage.setItem('jupyter-dist:runs-table', old);
    const full = { fetch: async () => undefined, save: async () => Promise.reject(new Error()) };
    for (const db of [null, full as unknown as StateDB]) {
      expect(await new TableStore(db).read()).toMatchObject({ sort: 'name', down: true });
      expect(localStorage.getItem('jupyter-dist:runs-table')).toBe(old);
    }
    const db = new StateDB();
    expect(await new TableStore(db).read()).toMatchObject({ sort: 'name', down: true });
    expect(localStorage.getItem('jupyter-dist:runs-table')).toBeNull();
    expect(await new TableStore(db).read()).toMatchObject({ sort: 'name', down: true });
  });

  it('changes no row between the press and the release of the pointer', async () => {
    await show(2);
    const name = all('.jpd-runs-name')[0];
    name.dispatchEvent(new MouseEvent('pointerdown', { bubbles: true }));
    server.all = [...server.all, told(2)];
    await server.lists.refresh();
    expect(all('.jpd-runs-name')[0]).toBe(name);
    window.dispatchEvent(new MouseEvent('pointerup'));
    await vi.waitFor(() => expect(rows().length).toBe(3));
  });

  it('takes a name in the place of the old one', async () => {
    await show(2);
    named('Rename In[1]').click();
    const field = named('Name of the run') as HTMLInputElement;
    field.value = 'the best';
    field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    await vi.waitFor(() => expect(rows()[0].textContent).toContain('the best'));
    expect(server.asked).toContain(`about ${server.all[1].id} {"name":"the best"}`);
  });
});

describe('compare', () => {
  it('tells what differs, and metrics always', () => {
    const described = [1, 2].map(index => ({
      run: told(index),
      environment: { python: '3.11', packages: { torch: `2.${index}`, numpy: '2.0' } }
    }));
    const rows = differences(described, english);
    expect(rows.map(row => [row.name, row.values.join()])).toEqual([
      ['lr', '0.1,0.2'],
      ['model', 'vit,resnet'],
      ['torch', '2.1,2.2'],
      ['duration', '1.0 s,1.0 s'],
      ['loss', '9,8']
    ]);
  });

  it('shows lines that are in one of two cells alone', () => {
    const lines = diffLines('a\nb\nc', 'a\nx\nc\nd');
    expect(lines.map(line => line.change + line.text)).toEqual([' a', '-b', '+x', ' c', '+d']);
    const long = Array.from({ length: 20 }, (_, at) => `line ${at}`).join('\n');
    expect(folded(diffLines(long, `${long}\nnew`)).map(line => line.change)).toEqual([
      '…',
      ...[' ', ' ', ' ', '+']
    ]);
  });

  it('draws curves over the time since the start, and over epochs', () => {
    const line = (values: number[]) => [
      { rank: 0, steps: [0, 10, 20], values, times: [100, 101, 102.04] }
    ];
    const curves = {
      names: ['loss', 'epoch'],
      curves: [
        { name: 'loss', ranks: line([3, 2, 1]), band: null },
        { name: 'epoch', ranks: line([0, 1, 2]), band: null }
      ]
    };
    const steps = (axis: 'time' | 'epoch') =>
      over(curves, axis, 100)?.curves.map(one => [one.name, one.ranks[0].steps]);
    expect(steps('time')).toEqual([['loss', [0, 1, 2]]]);
    expect(steps('epoch')).toEqual([['loss', [0, 1, 2]]]);
    expect(over(curves, 'step', 100)).toBe(curves);
  });
});

describe('contentsPath', () => {
  it.each([
    ['/srv/work/a/b.ipynb', '/srv/work', 'a/b.ipynb'],
    ['/home/me/work/b.ipynb', '~/work', 'b.ipynb'],
    ['/root/b.ipynb', '~', 'b.ipynb'],
    ['/data/homes/me/work/b.ipynb', '~/work', 'b.ipynb'],
    ['b.ipynb', '/srv/work', 'b.ipynb']
  ])('finds %s below %s', (file, root, path) => {
    expect(contentsPath(file, root)).toBe(path);
  });
});
