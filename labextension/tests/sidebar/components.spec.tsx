import { nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ApiError } from '../../src/api';
import { ClustersModel } from '../../src/model/clusters';
import { RunsModel } from '../../src/model/runs';
import { ClustersSection } from '../../src/sidebar/clusters';
import { RunsSection } from '../../src/sidebar/runs';
import { FakeServer, LOCAL, makeRun, RAY, STATES } from './fakeserver';

const trans = nullTranslator.load('');
let root: Root;
let box: HTMLElement;
let server: FakeServer;
let clusters: ClustersModel;

beforeEach(() => {
  (globalThis as unknown as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;
  box = document.createElement('div');
  document.body.appendChild(box);
  root = createRoot(box);
  server = new FakeServer();
  clusters = new ClustersModel(server, trans);
});

afterEach(() => {
  act(() => root.unmount());
  server.lists.dispose();
  clusters.dispose();
  box.remove();
});

function draw(element: React.ReactElement): void {
  act(() => root.render(element));
}

function press(target: Element | null, key: string): void {
  act(() => {
    target?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  });
}

function all(selector: string): HTMLElement[] {
  return [...box.querySelectorAll<HTMLElement>(selector)];
}

function named(label: string): HTMLElement | null {
  return box.querySelector(`[aria-label="${label}"]`);
}

describe('RunsSection', () => {
  const did = vi.fn();

  async function show(
    change: { comparing?: boolean; elsewhere?: string; notebook?: boolean } = {}
  ): Promise<RunsModel> {
    const model = new RunsModel({ server, lists: server.lists, trans });
    model.active = true;
    await model.refresh();
    did.mockReset();
    const render = () =>
      draw(
        <RunsSection
          model={model}
          trans={trans}
          comparing={change.comparing ?? false}
          elsewhere={change.elsewhere ?? null}
          onOpen={run => did('open', run.name)}
          onStop={run => did('stop', run.name)}
          onRemove={run => did('remove', run.name)}
          onRename={(run, name) => did('rename', run.name, name)}
          onCompare={ids => did('compare', ids.length)}
          onStartCompare={() => did('choose')}
          onEndCompare={() => did('end')}
          onMenu={(runs, at, rename) => {
            did('menu', ...runs.map(run => run.name), at.clientX);
            rename();
          }}
          onFirstCell={change.notebook ? () => did('first cell') : null}
          onExample={() => did('example')}
        />
      );
    model.changed.connect(render);
    render();
    return model;
  }

  it('has one row for each run, with a mark of its own for each state', async () => {
    server.all = STATES.map((state, index) =>
      makeRun(index, { state, ended: index < 3 ? null : 1 })
    );
    await show();
    expect(all('[role=listitem]').length).toBe(STATES.length);
    const shapes = all('.jpd-sb-mark').map(mark => mark.innerHTML);
    expect(new Set(shapes).size).toBe(STATES.length);
    expect(named('Stop In[1]')).not.toBeNull();
    expect(named('Remove In[1]')).toBeNull();
    // Unwatched is no end: it can be stopped, not removed.
    expect(named('Stop In[2]')).not.toBeNull();
    expect(named('Remove In[2]')).toBeNull();
    expect(box.textContent).toContain('unwatched');
    expect(named('Remove In[3]')).not.toBeNull();
  });

  it('calls no stalled run running, and counts no ranks of a tuning run', async () => {
    const stall = { since: 1, noticed: 2 };
    server.all = [
      makeRun(1, { state: 'running', ended: null, stall }),
      makeRun(2, { world_size: 0 })
    ];
    await show();
    const [tuning, stalled] = all('.jpd-sb-row-main');
    expect(stalled.getAttribute('aria-label')).toMatch(/^In\[1\], stalled, /);
    expect(stalled.title).toMatch(/^In\[1\]: stalled\n/);
    expect([stalled.title, stalled.textContent].join()).not.toContain('running');
    expect(tuning.title).toMatch(/^local, started /m);
  });

  it('takes a name when it is typed, not when a word of an input method is', async () => {
    server.all = [makeRun(1)];
    await show();
    press(all('.jpd-sb-row-main')[0], 'F2');
    const field = named('Name of the run') as HTMLInputElement;
    field.value = '日本';
    const enter = (isComposing: boolean) =>
      act(() => {
        const event = { key: 'Enter', bubbles: true, cancelable: true, isComposing };
        field.dispatchEvent(new KeyboardEvent('keydown', event));
      });
    enter(true);
    expect(did).not.toHaveBeenCalled();
    enter(false);
    expect(did.mock.calls).toEqual([['rename', 'In[1]', '日本']]);
  });

  it('draws the rows in sight only, however many there are', async () => {
    server.all = Array.from({ length: 500 }, (_, index) => makeRun(index));
    const model = await show();
    await act(() => model.more());
    expect(model.runs.length).toBeGreaterThanOrEqual(200);
    expect(all('[role=listitem]').length).toBeLessThan(40);
    expect(all('[role=listitem]')[0].getAttribute('aria-setsize')).toBe('500');
  });

  it('is one stop of the Tab key; arrows, Enter, Space and Delete do the rest', async () => {
    server.all = [makeRun(1), makeRun(2), makeRun(3)];
    await show();
    const mains = () => all('[data-main]');
    expect(mains().map(main => main.tabIndex)).toEqual([0, -1, -1]);
    act(() => mains()[0].focus());
    press(document.activeElement, 'ArrowDown');
    expect(document.activeElement).toBe(mains()[1]);
    expect(mains().map(main => main.tabIndex)).toEqual([-1, 0, -1]);
    press(document.activeElement, 'Enter');
    press(document.activeElement, 'Delete');
    press(document.activeElement, ' ');
    expect(did.mock.calls).toEqual([['open', 'In[2]'], ['remove', 'In[2]'], ['choose']]);
    press(document.activeElement, 'End');
    expect(document.activeElement).toBe(mains()[2]);
  });

  it('leaves the keys of the filter alone', async () => {
    server.all = [makeRun(1)];
    await show();
    press(named('Filter runs by text'), 'Delete');
    expect(did).not.toHaveBeenCalled();
  });

  it('compares two runs or more', async () => {
    server.all = [makeRun(1), makeRun(2)];
    const model = await show({ comparing: true });
    const button = () => all('.jpd-sb-primary')[0] as HTMLButtonElement;
    act(() => model.toggleSelected(server.all[0].id));
    expect(button().disabled).toBe(true);
    act(() => model.toggleSelected(server.all[1].id));
    act(() => button().click());
    expect(did).toHaveBeenCalledWith('compare', 2);
  });

  it('says what to do where there is nothing, and where this server does not look', async () => {
    await show();
    expect(box.textContent).toContain('%%distribute -np 2');
    expect(box.textContent).toContain('/runs');
    await show({ elsewhere: '/other/runs' });
    expect(box.textContent).toContain('/other/runs');
  });

  it('has a menu for a run, or for all that are selected', async () => {
    server.all = [makeRun(1), makeRun(2), makeRun(3)];
    const menu = (name: string) => {
      const event = new MouseEvent('contextmenu', { bubbles: true, cancelable: true, clientX: 5 });
      const row = all('.jpd-sb-row').find(one => one.textContent?.includes(name));
      act(() => void row?.dispatchEvent(event));
      return event.defaultPrevented;
    };
    await show();
    expect(menu('In[2]')).toBe(true);
    expect(did.mock.calls).toEqual([['menu', 'In[2]', 5]]);
    expect(named('Name of the run')).not.toBeNull();
    press(named('Name of the run'), 'Escape');
    const model = await show({ comparing: true });
    act(() => [0, 1].forEach(at => model.toggleSelected(server.all[at].id)));
    menu('In[3]');
    menu(server.all[0].name);
    expect(did.mock.calls).toEqual([
      ['menu', 'In[3]', 5],
      ['menu', ...model.runs.filter(run => model.selected.includes(run.id)).map(run => run.name), 5]
    ]);
  });

  it('offers a way back from a filter that nothing passes', async () => {
    server.all = [makeRun(1)];
    const model = await show();
    await act(() => model.setFilter({ text: 'xyz' }));
    expect(box.textContent).toContain('No run matches');
    expect(named('Filter runs by text')).not.toBeNull();
  });

  it('leads to a first run, in the notebook in front or in a new one', async () => {
    const button = (text: string) => all('button').find(one => one.textContent === text);
    await show();
    expect(button('Insert into notebook')).toBeUndefined();
    act(() => button('Open an example')?.click());
    expect(did).toHaveBeenCalledWith('example');
    await show({ notebook: true });
    act(() => button('Insert into notebook')?.click());
    expect(did).toHaveBeenCalledWith('first cell');
    // What is shown can be pasted as one cell: the magic is its first line.
    expect(all('pre')[0].textContent).toMatch(/^%%distribute -np 2\n/);
  });

  it('sorts by a name and a direction', async () => {
    server.all = [1, 2].map(at => makeRun(at, { final: { loss: at }, parameters: { lr: at } }));
    const model = await show();
    const by = named('Sort runs by') as HTMLSelectElement;
    const choose = (value: string) =>
      act(async () => {
        by.value = value;
        by.dispatchEvent(new Event('change', { bubbles: true }));
      });
    expect(by.value).toBe('created');
    expect([...by.querySelectorAll('optgroup option')].map(one => one.textContent)).toEqual([
      'loss',
      'lr'
    ]);
    await choose('metric:loss');
    expect(model.filter.sort).toBe('metric:loss');
    await act(async () => named('Lowest first. Press for highest first')?.click());
    expect(model.filter.sort).toBe('-metric:loss');
    await choose('created');
    expect(model.filter.sort).toBeNull();
  });

  it('says why there is no list', async () => {
    server.down = new ApiError('404 Not Found', 404);
    await show();
    expect(box.querySelector('[role=alert]')?.textContent).toContain('lacks jupyter-dist');
  });
});

describe('ClustersSection', () => {
  const did = vi.fn();

  async function show(
    used: string | null = null,
    notebook: string | null = 'a.ipynb'
  ): Promise<void> {
    await clusters.refresh();
    did.mockReset();
    draw(
      <ClustersSection
        model={clusters}
        trans={trans}
        notebook={notebook}
        used={used}
        pending={false}
        showBackends
        onUse={target => did('use', target)}
        onInsert={target => did('insert', target)}
        onMenu={target => did('menu', target)}
        onDelete={target => did('delete', target)}
        onNew={() => did('new')}
        onSaveSite={(backend, options) => did('save', backend, options)}
        onOpenRun={id => did('run', id)}
      />
    );
  }

  it('has a card for each cluster and backend, with what was found or what is missing', async () => {
    server.saved = [{ name: 'box', backend: 'local', options: { np: 4 }, problem: null }];
    await show();
    // What cannot be used is folded, behind what can.
    expect(all('li').length).toBe(2);
    act(() => all('.jpd-sb-fold')[0].click());
    expect(all('.jpd-sb-fold')[0].getAttribute('aria-expanded')).toBe('true');
    const cards = all('li').map(card => card.textContent);
    expect(cards[0]).toContain('local × 4');
    expect(cards[1]).toContain('2 cores');
    expect(cards[2]).toContain('needs: pip install "jupyter-dist[ray]"');
  });

  it('says what is wrong with a backend that fails when it is loaded or asked', async () => {
    const broken = { ...RAY, name: 'broken', install: null, problem: 'SystemExit: 3' };
    const hangs = { ...LOCAL, name: 'hangs', detail: {}, problem: 'has not answered' };
    server.backends = async () => [LOCAL, broken, hangs];
    await show();
    act(() => all('.jpd-sb-fold')[0].click());
    const cards = all('li').map(card => card.textContent);
    expect(cards[0]).toContain('2 cores');
    expect(cards[1]).toContain('SystemExit: 3');
    expect(cards[2]).toContain('has not answered');
  });

  it('lists what runs for a backend, and saves what leads there', async () => {
    const options = { address: '10.0.0.2:6379' };
    const has = { nodes: 2, cpus: { free: 3, total: 4 } };
    const site = { name: '10.0.0.2:6379', options, problem: null, ...has };
    const ray = { ...LOCAL, name: 'ray', detail: { Ray: '2.60.0' } };
    server.saved = [{ name: 'ours', backend: 'ray', options, problem: null }];
    server.backends = async () => [{ ...ray, sites: [site] }];
    await show();
    const [saved, card] = all('.jpd-sb-card');
    expect(saved.textContent).toContain('2 nodes · 3 of 4 CPUs free');
    expect(card.textContent).toContain('2 nodes · 3 of 4 CPUs free');
    act(() => named('Save 10.0.0.2:6379 as a cluster')?.click());
    expect(did.mock.calls).toEqual([['save', 'ray', options]]);
    server.backends = async () => [{ ...ray, sites: [], no_site: 'none runs here' }];
    await show();
    expect(all('.jpd-sb-card')[1].textContent).toContain('none runs here');
  });

  it('uses a cluster with one click, also where the kernel alone may have its engine', async () => {
    server.saved = [{ name: 'box', backend: 'local', options: {}, problem: null }];
    await show('box');
    act(() => all('.jpd-sb-fold')[0].click());
    const [box_, local, ray] = all('[data-main]');
    expect(box_.getAttribute('aria-pressed')).toBe('true');
    act(() => local.click());
    act(() => ray.click());
    expect(did.mock.calls).toEqual([
      ['use', { kind: 'backend', name: 'local' }],
      ['use', { kind: 'backend', name: 'ray' }]
    ]);
  });

  it('asks before Delete deletes, and leaves backends alone', async () => {
    server.saved = [{ name: 'box', backend: 'local', options: {}, problem: null }];
    await show();
    const [box_, local] = all('[data-main]');
    act(() => box_.focus());
    press(box_, 'Delete');
    act(() => local.focus());
    press(local, 'Delete');
    expect(did.mock.calls).toEqual([['delete', { kind: 'cluster', name: 'box' }]]);
  });

  it('inserts cells only where a notebook is open', async () => {
    await show(null, null);
    expect((named('Insert a cell that runs on local') as HTMLButtonElement).disabled).toBe(true);
  });
});
