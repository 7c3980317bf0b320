import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RunMissing } from '../../src/run/source';
import type { ICurve, IRankProgress, IRunInfo } from '../../src/run/source';
import type { IBundleHost } from '../../src/run/bundles';
import { RunView } from '../../src/run/view';
import { FakeSource, runInfo } from './fakesource';

const plots = vi.hoisted(() => ({ made: 0, alive: 0, data: [] as unknown[] }));

vi.mock('uplot', () => ({
  // There is no canvas here.
  default: class {
    width = 300;
    series: unknown[];
    cursor = {};
    constructor(options: { series: unknown[] }, data: unknown) {
      plots.made++;
      plots.alive++;
      plots.data.push(data);
      this.series = options.series;
    }
    setData(data: unknown) {
      plots.data.push(data);
    }
    setScale() {}
    setSize() {}
    setCursor() {}
    destroy() {
      plots.alive--;
    }
  }
}));

let view: RunView | null = null;

beforeEach(() => {
  // jsdom lays nothing out.
  vi.spyOn(HTMLElement.prototype, 'clientHeight', 'get').mockReturnValue(180);
  vi.spyOn(HTMLElement.prototype, 'clientWidth', 'get').mockReturnValue(600);
  Object.assign(plots, { made: 0, alive: 0, data: [] });
});

afterEach(() => {
  view?.dispose();
  view = null;
  vi.restoreAllMocks();
});

async function show(source: FakeSource): Promise<HTMLElement> {
  view = new RunView({ source });
  document.body.appendChild(view.node);
  const { node } = view;
  await vi.waitFor(() => expect(node.querySelector<HTMLElement>('.jpd-main')?.hidden).toBe(false));
  return node;
}

const all = (node: HTMLElement, selector: string) => [
  ...node.querySelectorAll<HTMLElement>(selector)
];
const text = (node: HTMLElement, selector: string) =>
  node.querySelector(selector)?.textContent ?? null;

function byName(node: HTMLElement, name: string): HTMLElement {
  const found = all(node, 'button').find(
    button => (button.getAttribute('aria-label') ?? button.textContent) === name
  );
  if (!found) {
    throw new Error(`no button is called ${name}`);
  }
  return found;
}

function press(target: HTMLElement, key: string, more: KeyboardEventInit = {}): void {
  target.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more })
  );
}

describe('the header', () => {
  it('says state, backend, ranks and time', async () => {
    const node = await show(new FakeSource(runInfo(4)));
    expect(text(node, '.jpd-state')).toBe('Running');
    expect(text(node, '.jpd-facts')).toBe('local · 4 ranks');
    expect(text(node, '.jpd-elapsed')).toBe('5 s');
  });

  it('says which trial a run is, and what it tries', async () => {
    const trial = { of: 'r-0', number: 2, parameters: { lr: 0.01, kind: '<b>' } };
    const node = await show(new FakeSource(runInfo(1, 'running', { trial })));
    expect(text(node, '.jpd-facts')).toBe('local · 1 rank · trial 2 (lr=0.01, kind=<b>)');
  });

  it.each([
    [0, 2, '0 of 2 restarts'],
    [1, 1, '1 of 1 restart'],
    [5, 2, 'attempt 5']
  ])('counts attempts as dist.attempt() does: %i', async (attempt, max_restarts, told) => {
    const node = await show(new FakeSource(runInfo(1, 'running', { attempt, max_restarts })));
    expect(text(node, '.jpd-facts')).toBe(`local · 1 rank · ${told}`);
  });

  it('does not call a stalled run running', async () => {
    const stall = { since: 1002, noticed: 1004 };
    const node = await show(new FakeSource(runInfo(2, 'running', { stall })));
    expect(text(node, '.jpd-state')).toBe('Stalled');
  });

  it('says pace and what is left', async () => {
    const progress = { n: 40, total: 100, desc: 'epoch 1', rate: 2 };
    const node = await show(new FakeSource(runInfo(2, 'running', { progress })));
    expect(text(node, '.jpd-pace')).toBe('epoch 1 40/100 · 2 steps/s · 30 s left');
    expect(node.querySelector('[role=progressbar]')?.getAttribute('aria-valuenow')).toBe('40');
  });

  it('has the ranks’ bars in their order, and inner bars only of the loop that goes on', async () => {
    const bar = (rank: number, id: number, inner?: string[]) => ({
      ...{ rank, id, n: 1, total: 2, desc: `outer ${id}`, rate: null },
      ...(inner ? { inner: inner.map(desc => ({ n: 1, total: 9, desc, rate: null })) } : {})
    });
    const bars = (...progress_by_rank: IRankProgress[]) =>
      runInfo(3, 'running', { progress_by_rank });
    const source = new FakeSource(bars(bar(1, 100, ['epoch 1']), bar(2, 100)));
    const node = await show(source);
    const shown = () => all(node, '.jpd-progress-row').map(row => row.textContent);
    await vi.waitFor(() => expect(shown()).toHaveLength(3));
    source.tell({ kind: 'run', run: bars(bar(0, 100), bar(1, 100), bar(2, 100)) });
    // Between two inner loops nothing jumps.
    const outer = (id: number) => [0, 1, 2].map(rank => `${rank}outer ${id} 1/2`);
    const [first, second, third] = outer(100);
    expect(shown()).toEqual([first, second, 'epoch 1 1/9', third]);
    source.tell({ kind: 'run', run: bars(bar(0, 200), bar(1, 200), bar(2, 200)) });
    expect(shown()).toEqual(outer(200));
  });

  it('keeps what is being typed when news of the run come, also while a word is composed', async () => {
    const source = new FakeSource(runInfo(1));
    const said: unknown[] = [];
    const actions = {
      say: async (change: unknown) => void said.push(change),
      ...{ environment: async () => ({}), again: async () => {} },
      ...{ change: async () => {}, showCell: async () => {} }
    };
    const drawn: unknown[] = [];
    const bundles: IBundleHost = {
      shows: mime => mime === 'text/markdown',
      render: async (place, mime, data) => {
        drawn.push([mime, data]);
        place.textContent = 'drawn';
        return { dispose: () => place.remove() };
      }
    };
    view = new RunView({ source, actions, bundles });
    document.body.appendChild(view.node);
    const { node } = view;
    await vi.waitFor(() => expect(text(node, '.jpd-about')).toContain('Add tags'));
    const field = () => node.querySelector<HTMLInputElement>('.jpd-about .jpd-typing')!;
    const enter = (more: KeyboardEventInit = {}) =>
      field().dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, ...more }));
    byName(node, 'Add tags').click();
    field().value = 'one';
    enter();
    byName(node, 'Add a note').click();
    const typing = field();
    typing.value = 'half a sen';
    // The echo of the tags.
    source.tell({ kind: 'run', run: runInfo(1, 'running', { tags: ['one'] }) });
    expect([field(), field().value]).toEqual([typing, 'half a sen']);
    typing.value = '**半分**';
    enter({ ctrlKey: true, isComposing: true });
    // A note has several lines.
    enter();
    expect([typing.tagName, said]).toEqual(['TEXTAREA', [{ tags: ['one'] }]]);
    typing.value += '\n\nsecond';
    enter({ ctrlKey: true });
    const note = '**半分**\n\nsecond';
    await vi.waitFor(() => expect(said).toEqual([{ tags: ['one'] }, { note }]));
    expect(text(node, '.jpd-about')).toContain('one');
    source.tell({ kind: 'run', run: runInfo(1, 'running', { note }) });
    await vi.waitFor(() => expect(drawn).toEqual([['text/markdown', note]]));
    expect(text(node, '.jpd-about-note')).toBe('drawn');
  });

  it('stops, and kills when asked again, but not by a double click', async () => {
    const source = new FakeSource(runInfo(2));
    const node = await show(source);
    vi.useFakeTimers();
    const stop = byName(node, 'Stop');
    stop.focus();
    stop.click();
    stop.click();
    await vi.advanceTimersByTimeAsync(0);
    expect(text(node, '[role=status]')).toBe('Stopping the run');
    stop.click();
    expect([stop.textContent, source.stops]).toEqual(['Stopping …', [false]]);
    // The focus stays, and Enter twice is no other thing.
    expect([document.activeElement, stop.getAttribute('aria-disabled')]).toEqual([stop, 'true']);
    await vi.advanceTimersToNextTimerAsync();
    await vi.advanceTimersByTimeAsync(3000);
    expect(stop.textContent).toBe('Kill');
    stop.click();
    stop.click();
    expect(source.stops).toEqual([false, true]);
    vi.useRealTimers();
    source.tell({ kind: 'run', run: runInfo(2, 'stopped') });
    expect(node.querySelector<HTMLElement>('.jpd-stop')?.hidden).toBe(true);
  });
});

describe('the ranks', () => {
  it.each([1, 8, 64, 65, 1000])('are %d chips, one of them in the tab order', async size => {
    const node = await show(new FakeSource(runInfo(size)));
    const chips = all(node, '.jpd-chip');
    expect(chips.length).toBe(size);
    expect(chips.filter(chip => chip.tabIndex === 0).length).toBe(1);
  });

  it('tell their state without colour, and where they are', async () => {
    const info = runInfo(3, 'failed');
    info.ranks[1] = { ...info.ranks[1], state: 'stopped', signal_name: 'SIGTERM' };
    const node = await show(new FakeSource(info));
    expect(all(node, '.jpd-chip .jpd-shape').map(shape => shape.dataset.state)).toEqual([
      'failed',
      'stopped',
      'failed'
    ]);
    expect(all(node, '.jpd-chip')[1].getAttribute('aria-label')).toBe(
      'Rank 1, stopped, host node-0, pid 101, ended by SIGTERM'
    );
    all(node, '.jpd-chip')[1].dispatchEvent(new FocusEvent('focusin', { bubbles: true }));
    expect(text(node, '.jpd-strip [role=tooltip]')).toContain('pid 101');
  });

  it('are walked with the arrow keys, and open their log', async () => {
    const source = new FakeSource(runInfo(4));
    source.lines = ['x'];
    const node = await show(source);
    const chips = all(node, '.jpd-chip');
    chips[0].focus();
    press(chips[0], 'ArrowRight');
    press(chips[1], 'End');
    expect(document.activeElement).toBe(chips[3]);
    chips[3].click();
    expect(chips[3].getAttribute('aria-pressed')).toBe('true');
    expect(node.querySelector('[role=tab][aria-selected=true]')?.getAttribute('aria-label')).toBe(
      'Rank 3'
    );
    await vi.waitFor(() => expect(source.asked).toContain('3 -200 200'));
  });
});

describe('how many ranks are in a state', () => {
  it('leads from one of them to the next', async () => {
    const info = runInfo(300);
    for (const rank of [70, 200]) {
      info.ranks[rank] = { ...info.ranks[rank], state: 'failed' };
    }
    const source = new FakeSource(info);
    const node = await show(source);
    const counts = () => all(node, '.jpd-count').filter(count => !count.hidden);
    expect(counts().map(count => count.textContent?.trim())).toEqual(['2 failed', '298 running']);
    const focused = () => document.activeElement?.getAttribute('aria-label')?.split(',')[0];
    for (const rank of [70, 200, 70]) {
      counts()[0].click();
      expect(focused()).toBe(`Rank ${rank}`);
    }
    expect(all(node, '.jpd-chip').filter(chip => chip.tabIndex === 0).length).toBe(1);
    expect(text(node, '.jpd-strip [role=tooltip]')).toContain('failed');
    source.tell({ kind: 'run', run: runInfo(300, 'succeeded') });
    expect(counts().map(count => count.textContent?.trim())).toEqual(['300 succeeded']);
  });
});

describe('the ranks of several hosts', () => {
  function onHosts(size: number, hosts: number): IRunInfo {
    const info = runInfo(size);
    // Round-robin, as mpirun does when it is told to.
    info.ranks = info.ranks.map(rank => ({ ...rank, host: `h${rank.rank % hosts}` }));
    return info;
  }
  const names = (node: HTMLElement) => all(node, '.jpd-host-name').map(name => name.textContent);
  const shown = (node: HTMLElement) =>
    all(node, '.jpd-host').map(host =>
      all(host, '.jpd-chip').map(chip => Number(/\d+/.exec(chip.getAttribute('aria-label')!)![0]))
    );

  it('stand behind the name of their host, which one host alone does not need', async () => {
    const source = new FakeSource(runInfo(4));
    const node = await show(source);
    expect(names(node)).toEqual([]);
    source.tell({ kind: 'run', run: onHosts(4, 2) });
    expect(names(node)).toEqual(['h0', 'h1']);
    expect(shown(node)).toEqual([
      [0, 2],
      [1, 3]
    ]);
    expect(all(node, '[role=group][aria-label="Host h1"] button').length).toBe(2);
    const chips = all(node, '.jpd-chip');
    chips[1].focus();
    press(chips[1], 'ArrowRight');
    // From the last rank of a host to the first one of the next.
    expect(document.activeElement?.getAttribute('aria-label')).toMatch(/^Rank 1,/);
    (document.activeElement as HTMLElement).click();
    expect(all(node, '[aria-pressed=true].jpd-chip')).toEqual([document.activeElement]);
    source.tell({ kind: 'run', run: runInfo(4) });
    expect(names(node)).toEqual([]);
  });

  it('are small where they are many', async () => {
    const node = await show(new FakeSource(onHosts(64, 8)));
    expect(all(node, '.jpd-host').length).toBe(8);
    expect(node.querySelector('.jpd-strip')?.hasAttribute('data-many')).toBe(true);
  });

  it('come and go in an elastic run', async () => {
    const source = new FakeSource(runInfo(2));
    source.lines = ['a'];
    const node = await show(source);
    all(node, '[role=tab]')[2].click();
    await vi.waitFor(() => expect(source.asked).toContain('1 -200 200'));
    const grown = runInfo(3);
    grown.ranks[2] = { ...grown.ranks[2], host: 'node-1' };
    source.tell({ kind: 'run', run: grown });
    expect(text(node, '.jpd-facts')).toBe('local · 3 ranks');
    expect(all(node, '.jpd-chip').length).toBe(3);
    expect(names(node)).toEqual(['node-0', 'node-1']);
    expect(all(node, '[role=tab]').map(tab => tab.textContent)).toEqual(['All', '0', '1', '2']);
    // Who reads a log goes on reading it.
    expect(text(node, '[role=tab][aria-selected=true]')).toBe('1');
  });
});

describe('the backend’s words while the run goes on', () => {
  it('links the pages that the backend names, and nothing else', async () => {
    const page = 'https://adb-1.2.azuredatabricks.net/?o=1#job/1/run/7';
    const reason = `job run 7 waits for its cluster; see ${page}; <a href="javascript:x">javascript:y</a>`;
    const node = await show(new FakeSource(runInfo(1, 'pending', { reason })));
    const links = all(node, '.jpd-detail a') as HTMLAnchorElement[];
    expect(links.map(link => [link.textContent, link.getAttribute('href')])).toEqual([
      [page, page]
    ]);
    expect(links[0].rel).toBe('noopener noreferrer');
    expect(node.querySelector('.jpd-detail')!.textContent).toContain('<a href="javascript:x">');
  });

  it('stand in the header, and go when they are over', async () => {
    const reason = 'host h2 does not answer since 12 s; trying again';
    const source = new FakeSource(runInfo(2, 'running', { reason }));
    const node = await show(source);
    const detail = node.querySelector<HTMLElement>('.jpd-detail')!;
    expect(detail.hidden).toBe(false);
    expect(detail.textContent?.trim()).toBe('Host h2 does not answer since 12 s; trying again');
    source.tell({ kind: 'run', run: runInfo(2) });
    expect(detail.hidden).toBe(true);
    source.tell({ kind: 'run', run: runInfo(2, 'stopped', { reason: 'stopped by the user' }) });
    expect(detail.hidden).toBe(true);
    expect(text(node, '.jpd-notice b')).toBe('Stopped by the user');
  });
});

describe('files', () => {
  it('are offered, and saved one by one', async () => {
    const source = new FakeSource(runInfo(2));
    const node = await show(source);
    expect(node.querySelector<HTMLElement>('.jpd-files')?.hidden).toBe(true);
    const files = [
      { name: 'timeline.json', bytes: 2_340_000 },
      { name: 'b.txt', bytes: 3 }
    ];
    source.tell({ kind: 'run', run: runInfo(2, 'succeeded', { files }) });
    expect(all(node, '.jpd-file').map(file => file.textContent)).toEqual([
      'timeline.json2.34 MB',
      'b.txt3 B'
    ]);
    byName(node, 'Download timeline.json').click();
    expect(source.saved).toEqual(['timeline.json']);
  });
});

describe('the logs', () => {
  it('say that nothing was printed, in little room', async () => {
    const source = new FakeSource(runInfo(2));
    const node = await show(source);
    const message = node.querySelector<HTMLElement>('.jpd-log-message')!;
    await vi.waitFor(() => expect(message.textContent).toBe('Nothing printed yet'));
    expect(message.hidden).toBe(false);
    expect(node.querySelector('.jpd-log-short')).not.toBeNull();
    source.tell({ kind: 'run', run: runInfo(2, 'succeeded') });
    await vi.waitFor(() => expect(message.textContent).toBe('Nothing was printed'));
    await vi.waitFor(() => expect(message.hidden).toBe(false));
    expect(node.querySelector('.jpd-log-short')).not.toBeNull();
  });

  it('do not say that nothing was printed before the last lines have come', async () => {
    const source = new FakeSource(runInfo(1));
    const node = await show(source);
    const message = node.querySelector<HTMLElement>('.jpd-log-message')!;
    await vi.waitFor(() => expect(message.hidden).toBe(false));
    const said = new Set<string | null>();
    const note = () => message.hidden || said.add(message.textContent);
    new MutationObserver(note).observe(message, { attributes: true, childList: true });
    source.lines.push('at the very end');
    source.tell({ kind: 'run', run: runInfo(1, 'succeeded') });
    note();
    await vi.waitFor(() => expect(text(node, '.jpd-log')).toContain('at the very end'));
    expect([...said]).not.toContain('Nothing was printed');
  });

  it.each([
    [3, 'succeeded', true],
    [4, 'succeeded', false],
    [3, 'running', true],
    [4, 'running', false]
  ] as const)('of %d lines, %s: short is %s', async (count, state, short) => {
    const source = new FakeSource(runInfo(1, state));
    source.lines = Array.from({ length: count }, (_, n) => `line ${n}`);
    const node = await show(source);
    await vi.waitFor(() => expect(all(node, '.jpd-row').length).toBe(count));
    expect(node.querySelector<HTMLElement>('.jpd-log-message')?.hidden).toBe(true);
    expect(node.querySelector('.jpd-log-short') !== null).toBe(short);
  });

  it('come along with the news while somebody reads along, and are not asked for then', async () => {
    const source = new FakeSource(runInfo(2));
    source.lines = ['line 0'];
    const node = await show(source);
    await vi.waitFor(() => expect(all(node, '.jpd-row').length).toBe(1));
    expect(source.along).toEqual([null]);
    source.lines.push('line 1');
    const page = await source.logPage(null, 1, 9);
    const asked = () => source.asked.filter(one => one.startsWith('all'));
    const before = asked().length;
    const tails = [{ rank: null, launcher: null, page }];
    source.tell({ kind: 'log', id: 'r-1', ranks: { '0': 2 }, all: 2, tails });
    await vi.waitFor(() => expect(all(node, '.jpd-row').length).toBe(2));
    expect(asked().length).toBe(before);
    source.grow('line 2');
    await vi.waitFor(() => expect(all(node, '.jpd-row').length).toBe(3));
    expect(source.asked.at(-1)).toBe('all -100 100');
    source.tell({ kind: 'run', run: runInfo(2, 'succeeded') });
    expect(source.along).toEqual([]);
  });

  it('of launchers are beside those of the ranks', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = ['a'];
    const node = await show(source);
    expect(all(node, '[role=tab]').length).toBe(0);
    source.tell({ kind: 'run', run: runInfo(1, 'running', { launchers: ['launcher'] }) });
    expect(all(node, '[role=tab]').map(tab => tab.textContent)).toEqual(['Rank 0', 'Launcher']);
    byName(node, 'Launcher').click();
    await vi.waitFor(() => expect(source.asked).toContain('launcher -200 200'));
    expect(all(node, '.jpd-chip[aria-pressed=true]')).toEqual([]);
    const launchers = ['launcher-h1', 'launcher-h2'];
    source.tell({ kind: 'run', run: runInfo(2, 'running', { launchers }) });
    expect(all(node, '[role=tab]').map(tab => tab.textContent)).toEqual([
      'All',
      '0',
      '1',
      'Launcher on h1',
      'Launcher on h2'
    ]);
    // What was shown is there no more.
    expect(text(node, '[role=tab][aria-selected=true]')).toBe('All');
  });

  it('show all ranks folded, and follow the end', async () => {
    const source = new FakeSource(runInfo(4));
    source.lines = ['a', 'b'];
    source.ranksOf = n => (n ? [2] : [0, 1, 2, 3]);
    const node = await show(source);
    await vi.waitFor(() => expect(all(node, '.jpd-row').length).toBe(2));
    expect(all(node, '.jpd-rank').map(rank => rank.textContent)).toEqual(['[0-3]', '[2]']);
    source.grow('c');
    await vi.waitFor(() => expect(all(node, '.jpd-text').at(-1)?.textContent).toBe('c'));
  });

  it('stay where the reader is, and count what is new', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = Array.from({ length: 500 }, (_, n) => `line ${n}`);
    const node = await show(source);
    const log = node.querySelector<HTMLElement>('.jpd-log') as HTMLElement;
    await vi.waitFor(() => expect(all(node, '.jpd-text').at(-1)?.textContent).toBe('line 499'));
    press(log, 'Home');
    await vi.waitFor(() => expect(all(node, '.jpd-text')[0].textContent).toBe('line 0'));
    source.grow('more', 'and more');
    const news = node.querySelector<HTMLElement>('.jpd-news') as HTMLElement;
    await vi.waitFor(() => expect(news.textContent).toBe('2 new lines'));
    expect(all(node, '.jpd-text')[0].textContent).toBe('line 0');
    news.click();
    await vi.waitFor(() => expect(all(node, '.jpd-text').at(-1)?.textContent).toBe('and more'));
    expect(news.hidden).toBe(true);
  });

  it('search the whole log and step through the hits', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = Array.from({ length: 2000 }, (_, n) => (n % 500 === 0 ? `needle ${n}` : 'hay'));
    const node = await show(source);
    const search = node.querySelector<HTMLInputElement>('[type=search]') as HTMLInputElement;
    search.value = 'needle';
    search.dispatchEvent(new Event('input'));
    await vi.waitFor(() => expect(text(node, '.jpd-hits')).toBe('4'));
    press(search, 'Enter');
    press(search, 'Enter');
    expect(text(node, '.jpd-hits')).toBe('2/4');
    await vi.waitFor(() => expect(text(node, '.jpd-row-current .jpd-text')).toBe('needle 500'));
    // Enter that accepts a word of an input method is no step.
    press(search, 'Enter', { isComposing: true });
    expect(text(node, '.jpd-hits')).toBe('2/4');
    expect(text(node, '.jpd-row-current mark')).toBe('needle');
    press(search, 'Enter', { shiftKey: true });
    expect(text(node, '.jpd-hits')).toBe('1/4');
  });

  it('clear the count of a search at once, say that they search, and end the search before', async () => {
    const source = new FakeSource(runInfo(1));
    const node = await show(source);
    const search = node.querySelector<HTMLInputElement>('[type=search]') as HTMLInputElement;
    const hits = node.querySelector<HTMLElement>('.jpd-hits') as HTMLElement;
    const signals: AbortSignal[] = [];
    const answers: ((count: number) => void)[] = [];
    source.logSearch = (_of, _query, signal) => {
      signals.push(signal as AbortSignal);
      return new Promise(done =>
        answers.push(count => done({ hits: [], count, truncated: false }))
      );
    };
    const type = (value: string) => {
      search.value = value;
      search.dispatchEvent(new Event('input'));
    };
    type('a');
    expect(hits.getAttribute('aria-busy')).toBe('true');
    await vi.waitFor(() => expect(answers.length).toBe(1));
    answers[0](7);
    await vi.waitFor(() => expect(hits.textContent).toBe('7'));
    expect(hits.getAttribute('aria-busy')).toBe(null);
    type('ab');
    expect([hits.textContent, hits.getAttribute('aria-busy')]).toEqual(['', 'true']);
    await vi.waitFor(() => expect(answers.length).toBe(2));
    type('abc');
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, true]);
    await vi.waitFor(() => expect(answers.length).toBe(3));
    answers[1](8);
    answers[2](9);
    await vi.waitFor(() => expect(hits.textContent).toBe('9'));
    // Why an expression cannot be searched for is there to be read.
    source.logSearch = () => Promise.reject(new Error('not a regular expression: missing )'));
    type('(');
    await vi.waitFor(() => expect(hits.textContent).toContain('missing )'));
    expect(search.getAttribute('aria-invalid')).toBe('true');
    type('');
    expect([hits.textContent, hits.getAttribute('aria-busy')]).toEqual(['', null]);
  });

  it('end with what is not finished, such as bars', async () => {
    const source = new FakeSource(runInfo(12));
    source.lines = ['a'];
    source.unfinished = Array.from({ length: 12 }, (_, n) => (n < 2 ? '5%\r6%' : `${n}%\r7%`));
    const node = await show(source);
    const rows = () => all(node, '.jpd-row').map(row => row.textContent);
    await vi.waitFor(() => expect(rows().length).toBe(10));
    expect([...rows().slice(0, 3), rows()[9]]).toEqual(['1[0]a', '[0-1]6%', '[2]7%', '[9-11]…']);
    const log = node.querySelector<HTMLElement>('.jpd-log') as HTMLElement;
    press(log, 'ArrowUp', { shiftKey: true });
    expect(text(node, '[role=status]')).toBe('1 line selected');
    source.unfinished = [];
    source.grow('6%');
    await vi.waitFor(() => expect(rows()).toEqual(['1[0]a', '2[0]6%']));
  });

  it('are searched while they grow', async () => {
    const source = new FakeSource(runInfo(1));
    const node = await show(source);
    const growing = setInterval(() => source.grow('needle'), 20);
    const search = node.querySelector<HTMLInputElement>('[type=search]') as HTMLInputElement;
    search.value = 'needle';
    search.dispatchEvent(new Event('input'));
    await vi.waitFor(() => expect(text(node, '.jpd-hits')).toMatch(/^\d+$/), 3000);
    clearInterval(growing);
    // A step that comes before the hits waits for them.
    search.value = 'need';
    byName(node, 'Next hit').click();
    await vi.waitFor(() => expect(text(node, '.jpd-hits')).toMatch(/^1\/\d+$/));
  });

  it('copy a range chosen by its numbers, without colours', async () => {
    const source = new FakeSource(runInfo(2));
    source.lines = ['one', '\x1b[31mtwo\x1b[0m', 'three'];
    source.ranksOf = n => (n === 1 ? [0, 1] : [1]);
    const written = vi.fn(async () => undefined);
    Object.defineProperty(navigator, 'clipboard', {
      value: { writeText: written },
      configurable: true
    });
    const node = await show(source);
    await vi.waitFor(() => expect(all(node, '.jpd-row').length).toBe(3));
    const click = (n: number, shiftKey = false) =>
      all(node, '.jpd-number')[n].dispatchEvent(
        new MouseEvent('mousedown', { bubbles: true, shiftKey })
      );
    click(0);
    click(1, true);
    const copy = byName(node, 'Copy the selected lines') as HTMLButtonElement;
    expect(copy.disabled).toBe(false);
    copy.click();
    await vi.waitFor(() => expect(written).toHaveBeenCalledWith('[1] one\n[0-1] two\n'));
  });

  it('are selected with the keys as well', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = Array.from({ length: 500 }, (_, n) => `line ${n}`);
    const node = await show(source);
    const log = node.querySelector<HTMLElement>('.jpd-log') as HTMLElement;
    await vi.waitFor(() => expect(all(node, '.jpd-text').at(-1)?.textContent).toBe('line 499'));
    const selected = () => all(node, '.jpd-row-selected').map(row => Number(row.dataset.n));
    press(log, 'ArrowUp', { shiftKey: true });
    await vi.waitFor(() => expect(selected()).toEqual([499]));
    press(log, 'ArrowUp', { shiftKey: true });
    await vi.waitFor(() => expect(selected()).toEqual([498, 499]));
    expect(text(node, '[role=status]')).toBe('2 lines selected');
    press(log, 'Home', { shiftKey: true });
    await vi.waitFor(() => expect(selected()[0]).toBe(0));
    expect(text(node, '[role=status]')).toBe('500 lines selected');
    press(log, 'Escape');
    await vi.waitFor(() => expect(selected()).toEqual([]));
  });

  it('have tabs for few ranks and a list for many', async () => {
    expect(all(await show(new FakeSource(runInfo(12))), '[role=tab]').length).toBe(13);
    view?.dispose();
    const node = await show(new FakeSource(runInfo(13)));
    expect(all(node, '[role=tab]').length).toBe(0);
    expect(all(node, '.jpd-tabs option').length).toBe(14);
  });

  it('have tabs that the arrow keys walk through', async () => {
    const node = await show(new FakeSource(runInfo(3)));
    const tabs = all(node, '[role=tab]');
    tabs[0].focus();
    press(tabs[0], 'ArrowRight');
    expect(tabs[1].getAttribute('aria-selected')).toBe('true');
    expect(node.querySelector('[role=tabpanel]')?.getAttribute('aria-labelledby')).toBe(tabs[1].id);
  });
});

describe('the metrics', () => {
  const curve = (ranks: number) => ({
    name: 'loss',
    band: null,
    ranks: Array.from({ length: ranks }, (_, rank) => ({
      rank,
      steps: [0, 1],
      values: [2, 1],
      times: [0, 1]
    }))
  });

  it('show a rank alone, and others beside it', async () => {
    const source = new FakeSource(runInfo(3));
    source.curveList = [curve(3)];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    expect(text(node, '.jpd-chart-name')).toBe('loss');
    const chips = () => all(node, '.jpd-rank-toggles button');
    const pressed = () => chips().map(one => one.getAttribute('aria-pressed') === 'true');
    const lines = () => (plots.data.at(-1) as unknown[]).length - 1;
    chips()[1].click();
    expect([pressed(), lines()]).toEqual([[false, true, false], 1]);
    chips()[1].click();
    expect([pressed(), lines()]).toEqual([[true, true, true], 3]);
    chips()[1].dispatchEvent(new MouseEvent('click', { shiftKey: true }));
    expect([pressed(), lines()]).toEqual([[true, false, true], 2]);
    // A rank that joins does not bring back those that were switched off.
    source.tell({ kind: 'run', run: runInfo(4) });
    expect(pressed()).toEqual([true, false, true, true]);
  });

  it('of a rank, and its log, are shown wherever the rank is selected', async () => {
    const source = new FakeSource(runInfo(3));
    source.curveList = [curve(3)];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const pressed = (box: string) =>
      all(node, `${box} button[aria-pressed=true]`).map(one => one.textContent);
    const state = () => [
      pressed('.jpd-chips'),
      pressed('.jpd-rank-toggles'),
      text(node, '[role=tab][aria-selected=true]')
    ];
    const [chips, lines, tabs] = ['.jpd-chips', '.jpd-rank-toggles', '.jpd-tabs'].map(box =>
      all(node, `${box} button`)
    );
    expect(state()).toEqual([[], ['0', '1', '2'], 'All']);
    lines[1].click();
    expect(state()).toEqual([['1'], ['1'], '1']);
    chips[2].dispatchEvent(new MouseEvent('click', { shiftKey: true, bubbles: true }));
    expect(state()).toEqual([['1', '2'], ['1', '2'], 'All']);
    tabs[1].click();
    expect(state()).toEqual([['0'], ['0'], '0']);
    chips[0].click();
    expect(state()).toEqual([[], ['0', '1', '2'], 'All']);
  });

  it('appear in one frame with the bars of the ranks, which wait for them', async () => {
    const bar = { rank: 0, id: 1, n: 1, total: 2, desc: 'epoch', rate: null };
    const source = new FakeSource(runInfo(2, 'running', { progress_by_rank: [bar] }));
    const node = await show(source);
    const bars = node.querySelector('[aria-label="Progress of each rank"]')?.closest('details');
    const metrics = node.querySelector<HTMLElement>('.jpd-metrics');
    expect([bars?.hidden, metrics?.hidden]).toEqual([true, true]);
    source.curveList = [curve(2)];
    source.tell({ kind: 'curves', id: source.id });
    await vi.waitFor(() => expect(metrics?.hidden).toBe(false));
    expect(bars?.hidden).toBe(false);
  });

  it('of one point need no plot when the run has ended', async () => {
    const source = new FakeSource(runInfo(1));
    const point = { rank: 0, steps: [3], values: [2], times: [0] };
    source.curveList = [curve(1), { name: 'score', band: null, ranks: [point] }];
    const node = await show(source);
    const single = () => all(node, '.jpd-chart-single .jpd-chart-name').map(one => one.textContent);
    await vi.waitFor(() => expect(plots.alive).toBe(2));
    expect(single()).toEqual([]);
    source.tell({ kind: 'run', run: runInfo(1, 'succeeded') });
    await vi.waitFor(() => expect(single()).toEqual(['score']));
  });

  it('are a mean and a band of more than four ranks, with the lines of those that are chosen', async () => {
    const source = new FakeSource(runInfo(8));
    const parts = {
      ...{ steps: [0, 1], mean: [2, 1], min: [1, 0], max: [3, 2] },
      ...{ times: [], whole: 2, ranks: [] }
    };
    source.curveList = [{ ...curve(8), band: parts }];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const lines = () => (plots.data.at(-1) as unknown[]).length - 1;
    const [band, , , third] = all(node, '.jpd-rank-toggles button');
    // The mean has a second line for what only some ranks have reached.
    expect([band.getAttribute('aria-pressed'), lines()]).toEqual(['true', 4]);
    third.click();
    expect(lines()).toBe(5);
    band.click();
    expect(lines()).toBe(1);
    third.click();
    expect(lines()).toBe(8);
  });

  it('go over all attempts, and say where each begins', async () => {
    const source = new FakeSource(runInfo(1));
    source.curveList = [{ ...curve(1), attempts: [{ attempt: 1, step: 6 }] }];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const label = node.querySelector('.jpd-chart-box')?.getAttribute('aria-label');
    expect(label).toMatch(/; attempt 1 from step 6$/);
  });

  it('stand in sections, are filtered by name, and one is large', async () => {
    const source = new FakeSource(runInfo(1));
    const names = ['lr', 'train', 'val', 'grad'].flatMap(part =>
      part === 'lr' ? [part] : Array.from({ length: 6 }, (_, i) => `${part}/m${i}`)
    );
    source.curveList = names.map(name => ({ ...curve(1), name }));
    const node = await show(source);
    const shown = () => all(node, '.jpd-chart-name').map(one => one.textContent);
    await vi.waitFor(() => expect(shown()).toContain('lr'));
    const heads = all(node, '.jpd-chart-section > summary').map(one => one.textContent);
    expect(heads).toEqual(['train 6', 'val 6', 'grad 6']);
    // What would be the 14th chart and more is folded, and not drawn.
    expect(shown()).toEqual(names.slice(0, 13));
    const filter = node.querySelector<HTMLInputElement>('.jpd-metric-filter') as HTMLInputElement;
    const type = (value: string) => {
      filter.value = value;
      filter.dispatchEvent(new Event('input'));
    };
    type('grad/m[12]');
    expect(all(node, '.jpd-chart-section:not([hidden]) .jpd-chart-name').length).toBe(2);
    type('grad/m[');
    expect(text(node, '.jpd-metrics > .jpd-muted:not([hidden])')).toBe('No matching metric');
    type('');
    expect(shown()).toEqual(names.slice(0, 13));
    const large = () => all(node, '.jpd-chart-large .jpd-chart-name').map(one => one.textContent);
    byName(node, 'Enlarge train/m1').click();
    byName(node, 'Enlarge val/m2').click();
    expect(large()).toEqual(['val/m2']);
    press(node.querySelector('.jpd-chart-large .jpd-chart-box') as HTMLElement, 'Escape');
    expect(large()).toEqual([]);
  });

  it('say where a value was no number', async () => {
    const source = new FakeSource(runInfo(2));
    const lossy: ICurve = curve(2);
    const special = [{ step: 1, value: 'NaN' }];
    const not_finite = { count: 1, last: special[0], since: 1 };
    lossy.ranks[1] = { ...lossy.ranks[1], values: [2, null], special, not_finite };
    source.curveList = [lossy];
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-chart-special')).toBe('NaN from step 1 [1]'));
    expect(node.querySelector('.jpd-chart-box')?.getAttribute('aria-label')).toContain('NaN');
  });

  it('are drawn in the new colours when they come into sight after the theme has changed', async () => {
    const resized: (() => void)[] = [];
    class Observer {
      constructor(callback: () => void) {
        resized.push(callback);
      }
      observe() {}
      disconnect() {}
    }
    vi.stubGlobal('ResizeObserver', Observer);
    const source = new FakeSource(runInfo(2));
    source.curveList = [curve(2)];
    document.body.dataset.jpThemeLight = 'true';
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const width = vi.spyOn(HTMLElement.prototype, 'clientWidth', 'get').mockReturnValue(0);
    const made = plots.made;
    document.body.dataset.jpThemeLight = 'false';
    await vi.waitFor(() => expect(node.dataset.jpdTheme).toBe('dark'));
    expect(plots.made).toBe(made);
    width.mockReturnValue(600);
    resized.forEach(callback => callback());
    expect(plots.made).toBe(made + 1);
    expect(plots.alive).toBe(1);
    delete document.body.dataset.jpThemeLight;
    vi.unstubAllGlobals();
  });

  it('are drawn in the new colours when the theme changes', async () => {
    const source = new FakeSource(runInfo(2));
    source.curveList = [curve(2)];
    document.body.dataset.jpThemeLight = 'true';
    const node = await show(source);
    await vi.waitFor(() => expect(plots.made).toBeGreaterThan(0));
    const made = plots.made;
    document.body.dataset.jpThemeLight = 'false';
    await vi.waitFor(() => expect(plots.made).toBeGreaterThan(made));
    expect(node.dataset.jpdTheme).toBe('dark');
    delete document.body.dataset.jpThemeLight;
  });
});

describe('how a run ends', () => {
  const error = {
    kind: 'exception' as const,
    type: 'ValueError',
    message: 'bad <b>luck</b>',
    text: 'Traceback …\nValueError: bad luck',
    exit_code: 1,
    signal_name: null,
    peak_memory_bytes: null,
    host: 'node-0'
  };

  const card = {
    title: 'rank 1 failed first',
    about: 'host node-0, exit code 1',
    what: 'ValueError: bad <b>luck</b>',
    hints: [],
    causes: [],
    places: [],
    others: [],
    files: 'logs: /runs/r-1',
    parts: []
  };

  it('a long traceback is folded, so that the card stays short', async () => {
    const source = new FakeSource(runInfo(1, 'failed'));
    const frame = { label: 'In[7]', file: '/tmp/7.py', line: 2, function: 'f', source: 'f()' };
    const frames = Array.from({ length: 30 }, () => frame);
    source.errorList = [{ ...error, rank: 0, frames, collateral: false }];
    source.cardTold = card;
    const node = await show(source);
    await vi.waitFor(() => expect(all(node, '.jpd-frame').length).toBe(30));
    expect(all(node, '.jpd-failure > details[open]').length).toBe(0);
  });

  it('reads a card and results again that could not be read', async () => {
    const source = new FakeSource(runInfo(1, 'failed'));
    source.cardTold = card;
    const asked = vi.spyOn(source, 'card').mockRejectedValueOnce(new Error('503'));
    const results = vi.spyOn(source, 'results').mockRejectedValueOnce(new Error('503'));
    const node = await show(source);
    await vi.waitFor(() => expect(node.querySelector('.jpd-failure')).not.toBeNull(), 4000);
    expect([asked.mock.calls.length, results.mock.calls.length]).toEqual([2, 2]);
  });

  it('a run that was stopped while it hung says where its ranks were', async () => {
    const source = new FakeSource(runInfo(2, 'stopped'));
    source.cardTold = {
      ...card,
      title: 'run r-1 was stopped',
      what: 'stopped by the user',
      places: ['rank 1 was at In[2], line 3: time.sleep(600)']
    };
    const node = await show(source);
    await vi.waitFor(() =>
      expect(text(node, '.jpd-failure-line')).toBe('Rank 1 was at In[2], line 3: time.sleep(600)')
    );
  });

  it('a frame of a library says which one, and may be broken behind the parts of its path', async () => {
    const source = new FakeSource(runInfo(1, 'failed'));
    const file = '/home/me/.venv/lib/python3.11/site-packages/torch/nn/module.py';
    const frame = { label: file, file, line: 2, function: 'f', source: '' };
    source.errorList = [{ ...error, rank: 0, frames: [frame], collateral: false }];
    source.cardTold = card;
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-frame-place')).toBe('torch/nn/module.py:2 · f'));
    const place = node.querySelector<HTMLElement>('.jpd-frame-place');
    expect(place?.innerHTML.split('<wbr>').slice(0, 2)).toEqual(['torch/', 'nn/']);
    expect([place?.title, place?.dataset.file]).toEqual([file, file]);
  });

  it('the root cause comes first, with the cell’s lines; the others are folded', async () => {
    const source = new FakeSource(runInfo(3, 'failed'));
    const frames = [
      {
        label: 'In[7]',
        file: '/tmp/7.py',
        line: 2,
        function: 'train',
        source: 'raise ValueError("bad")'
      },
      { label: '', file: '/lib/a.py', line: 1, function: 'f', source: 'g()' },
      { label: '', file: '/lib/b.py', line: 1, function: 'g', source: 'boom()' }
    ];
    source.errorList = [
      { ...error, rank: 1, frames, collateral: false },
      { ...error, rank: 0, frames: [], collateral: true, message: 'port 3940' },
      { ...error, rank: 2, frames: [], collateral: true, message: 'port 3941' }
    ];
    source.cardTold = {
      ...card,
      hints: ['perhaps try https://x.test/doc'],
      places: ['rank 1 was at In[7], line 2: raise ValueError("bad")'],
      parts: [{ kind: 'traceback', title: 'Traceback of rank 1', text: 'is drawn from the error' }]
    };
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-failure-head b')).toBe('Rank 1 failed first'));
    expect(text(node, '.jpd-failure-what')).toBe('ValueError: bad <b>luck</b>');
    const [, , hint, place] = [...node.querySelector('.jpd-failure')!.children];
    expect(hint.textContent).toBe('→Perhaps try https://x.test/doc');
    expect(place.textContent).toBe('Rank 1 was at In[7], line 2: raise ValueError("bad")');
    expect(text(node, '.jpd-frame-own code')).toBe('raise ValueError("bad")');
    expect(
      all(node, '.jpd-failure > details').map(one => (one as HTMLDetailsElement).open)
    ).toEqual([true, false, false]);
    expect(text(node, '.jpd-failure')).not.toContain('is drawn from the error');
    expect(all(node, '.jpd-collateral .jpd-ranks').map(ranks => ranks.textContent)).toEqual([
      '[0,2]'
    ]);
    expect(node.querySelector('b b')).toBeNull();
  });

  it('no rank says why: the run does, and leads to the launcher', async () => {
    const more = { reason: 'horovodrun: no such host: h9', launchers: ['launcher'] };
    const source = new FakeSource(runInfo(2, 'failed', more));
    source.errorList = [{ ...error, rank: 1, frames: [], collateral: true }];
    const parts = [
      { kind: 'launcher' as const, title: 'launcher.log, its last lines', text: 'h9' }
    ];
    const what = 'horovodrun: no such host: h9';
    source.cardTold = { ...card, title: 'the run failed', about: 'r-1', what, parts };
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-failure-head b')).toBe('The run failed'));
    expect(text(node, '.jpd-failure-what')).toBe('horovodrun: no such host: h9');
    expect(text(node, '.jpd-failure summary')).toBe('1 rank ended because of it');
    expect(all(node, '.jpd-notice').length).toBe(0);
    byName(node, 'Show the launcher’s log').click();
    expect(text(node, '[role=tab][aria-selected=true]')).toBe('Launcher');
  });

  it('of an attempt, it is folded away under the next one, whose log stands beside its own', async () => {
    const source = new FakeSource(runInfo(2));
    source.lines = ['x'];
    source.errorList = [{ ...error, rank: 1, frames: [], collateral: false }];
    source.cardTold = card;
    const node = await show(source);
    const [restarts] = all(node, 'details').filter(one => one.querySelector('.jpd-restarts'));
    const choice = node.querySelector<HTMLSelectElement>('.jpd-logs select')!;
    expect([restarts.hidden, choice.hidden]).toEqual([true, true]);
    source.tell({ kind: 'run', run: runInfo(2, 'running', { attempt: 2, max_restarts: 2 }) });
    expect(text(restarts, 'summary')).toBe('Why it was restarted 2 times');
    expect(source.asked).not.toContain('errors of 0');
    (restarts as HTMLDetailsElement).open = true;
    restarts.dispatchEvent(new Event('toggle'));
    await vi.waitFor(() => expect(all(restarts, '.jpd-failure').length).toBe(2));
    expect(all(restarts, '.jpd-failure-head').map(head => head.textContent)).toEqual([
      'Rank 1 failed firsthost node-0, exit code 1',
      'Rank 1 failed firsthost node-0, exit code 1'
    ]);
    expect([...choice.options].map(option => option.text)).toEqual([
      'attempt 2',
      'attempt 1',
      'attempt 0'
    ]);
    choice.selectedIndex = 2;
    choice.dispatchEvent(new Event('change'));
    await vi.waitFor(() => expect(source.asked).toContain('all -200 200 of attempt 0'));
    const asked = source.asked.length;
    source.grow('of the current attempt');
    expect(source.asked.length).toBe(asked);
    choice.selectedIndex = 0;
    choice.dispatchEvent(new Event('change'));
    await vi.waitFor(() => expect(source.asked.at(-1)).toBe('all -200 200'));
  });

  it('results are shown once, equal ones folded', async () => {
    const source = new FakeSource(runInfo(4, 'succeeded'));
    source.resultList = [{ ranks: [0, 1, 3], repr: '0.5', error: null, bytes: 3 }];
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-result .jpd-ranks')).toBe('[0-1,3]'));
  });

  it('a lost run says where its files are', async () => {
    const node = await show(
      new FakeSource(runInfo(1, 'lost', { reason: 'the supervisor is gone' }))
    );
    expect(text(node, '.jpd-notice')).toContain('The supervisor is gone');
    expect(text(node, '.jpd-notice')).toContain('/runs/r-1');
  });

  it('an unwatched run is not at its end: it says what to do, and Stop is there', async () => {
    const reason = 'the supervisor is gone';
    const source = new FakeSource(runInfo(2, 'unwatched', { reason }));
    const results = vi.spyOn(source, 'results');
    const node = await show(source);
    expect(text(node, '.jpd-state')).toBe('Unwatched');
    expect(node.querySelectorAll('.jpd-notice')).toHaveLength(1);
    expect(text(node, '.jpd-notice')).toContain('The supervisor is gone');
    expect(text(node, '.jpd-notice')).toContain(
      'Stop ends the ranks. %dist attach r-1 starts a new supervisor'
    );
    expect(results).not.toHaveBeenCalled();
    const stop = byName(node, 'Stop');
    expect(stop.hidden).toBe(false);
    stop.click();
    await vi.waitFor(() => expect(source.stops).toEqual([false]));
    source.tell({ kind: 'run', run: runInfo(2, 'running') });
    expect(node.querySelector('.jpd-notice')).toBeNull();
  });

  it('a stall shows the stacks that were taken, grouped, and they stay', async () => {
    const stall = { since: 1000, noticed: 1300 };
    const source = new FakeSource(runInfo(3, 'running', { stall, host_time: 1300 }));
    source.kept = { ...(await source.stacks()), time: 1301 };
    const node = await show(source);
    expect(text(node, '.jpd-notice b')).toBe('No rank has printed or logged for 5:00');
    await vi.waitFor(() => expect(text(node, '.jpd-stack b')).toBe('Ranks 0-1'));
    expect(text(node, '.jpd-stacks')).toContain('No answer from ranks 2');
    source.tell({ kind: 'run', run: runInfo(3, 'stopped', { ended: 1400 }) });
    await vi.waitFor(() => expect(node.querySelector('.jpd-notice-warning')).toBeNull());
    expect(text(node, '.jpd-stack b')).toBe('Ranks 0-1');
    expect(node.querySelector<HTMLElement>('.jpd-stacks-box')?.hidden).toBe(false);
  });

  it('ranks that wait for their user: a button leads to their prompt, where there is a way', async () => {
    const waits = {
      waiting: [1],
      reason: 'rank 1 waits at In[4], line 14 (to answer: %dist debug)'
    };
    const source = new FakeSource(runInfo(3, 'running', waits));
    const debug = vi.fn().mockRejectedValue(new Error('No notebook is open.'));
    view = new RunView({ source, debug });
    const { node } = view;
    const label = '[aria-label="Answer the ranks that wait for you"]';
    await vi.waitFor(() => expect(node.querySelector<HTMLElement>(label)?.hidden).toBe(false));
    expect(text(node, '.jpd-detail')).toContain('Rank 1 waits at In[4], line 14');
    const button = node.querySelector<HTMLElement>(label) as HTMLElement;
    button.click();
    expect(debug.mock.calls[0][0].id).toBe('r-1');
    await vi.waitFor(() => expect(button.title).toBe('No notebook is open.'));
    source.tell({ kind: 'run', run: runInfo(3, 'running') });
    expect(button.hidden).toBe(true);
    view.dispose();
    view = new RunView({ source: new FakeSource(runInfo(3, 'running', waits)) });
    const bare = view.node;
    await vi.waitFor(() => expect(text(bare, '.jpd-detail')).toContain('Rank 1 waits'));
    expect(bare.querySelector<HTMLElement>(label)?.hidden).toBe(true);
  });

  it('a run that is not here: says where it was looked for', async () => {
    const source = new FakeSource(runInfo(1));
    source.failure = new RunMissing('no run', '/home/me/runs');
    const missing = vi.fn();
    view = new RunView({ source, onMissing: missing });
    await vi.waitFor(() => expect(missing).toHaveBeenCalledOnce());
    expect(text(view.node, '.jpd-notice')).toContain('/home/me/runs');
  });
});

describe('an answer that was under way for long', () => {
  it('does not take back what was told meanwhile', async () => {
    const source = new FakeSource(runInfo(1));
    let answer: (info: IRunInfo) => void = () => undefined;
    source.run = () => new Promise(resolve => (answer = resolve));
    view = new RunView({ source });
    source.tell({ kind: 'run', run: runInfo(1, 'succeeded') });
    answer(runInfo(1));
    await new Promise(resolve => setTimeout(resolve));
    expect(view.node.dataset.state).toBe('succeeded');
  });
});

describe('a removed run', () => {
  it('is said to be removed, and stays as it was read', async () => {
    const source = new FakeSource(runInfo(2, 'succeeded'));
    source.lines = ['hello'];
    const node = await show(source);
    await vi.waitFor(() => expect(node.textContent).toContain('hello'));
    source.tell({ kind: 'gone', id: source.id });
    expect(text(node, '.jpd-notice b')).toBe('This run was removed');
    expect(node.textContent).toContain('hello');
  });
});

describe('metrics', () => {
  it('say why there are none of --metric', async () => {
    const source = new FakeSource(runInfo(2, 'running'));
    vi.spyOn(source, 'curves').mockResolvedValue({
      names: [],
      curves: [],
      problem: '--metric x: takes more than 10 s'
    } as never);
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-metrics')).toContain('takes more than 10 s'));
    expect(node.querySelector<HTMLElement>('.jpd-metrics')?.hidden).toBe(false);
  });
});

describe('a lost connection', () => {
  it('is over: what could not be read is read', async () => {
    const source = new FakeSource(runInfo(2, 'succeeded'));
    source.resultList = [{ ranks: [0, 1], repr: '0.5', error: null, bytes: 3 }];
    const read = vi.spyOn(source, 'results').mockRejectedValueOnce(new Error('gone'));
    const node = await show(source);
    await vi.waitFor(() => expect(read).toHaveBeenCalledOnce());
    source.tell({ kind: 'connection', online: false });
    expect(text(node, '.jpd-notice b')).toBe('No connection');
    source.tell({ kind: 'connection', online: true });
    await vi.waitFor(() => expect(text(node, '.jpd-result .jpd-ranks')).toBe('[0-1]'));
    expect(all(node, '.jpd-notice').length).toBe(0);
  });
});

describe('what is left after disposal', () => {
  it('nothing listens, nothing draws', async () => {
    const added: [EventTarget, string, AbortSignal | undefined][] = [];
    const original = EventTarget.prototype.addEventListener;
    vi.spyOn(EventTarget.prototype, 'addEventListener').mockImplementation(function (
      this: EventTarget,
      type: string,
      listener: EventListenerOrEventListenerObject | null,
      options?: boolean | AddEventListenerOptions
    ) {
      if (!(this instanceof AbortSignal)) {
        added.push([this, type, typeof options === 'object' ? options.signal : undefined]);
      }
      original.call(this, type, listener, options);
    });
    const source = new FakeSource(runInfo(8));
    source.lines = ['a'];
    source.curveList = [
      { name: 'loss', band: null, ranks: [{ rank: 0, steps: [0], values: [1], times: [0] }] }
    ];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const ours = added.filter(
      ([target]) => target === document || target === window || node.contains(target as Node)
    );
    expect(ours.length).toBeGreaterThan(20);
    expect(ours.filter(([, , signal]) => !signal)).toEqual([]);
    view?.dispose();
    expect(ours.filter(([, , signal]) => !signal?.aborted)).toEqual([]);
    expect(source.listeners.size).toBe(0);
    expect(plots.alive).toBe(0);
    expect(node.isConnected).toBe(false);
    const before: IRunInfo = source.info;
    source.tell({ kind: 'run', run: before });
    view = null;
  });
});
