/** The header, the ranks, and what the backend says beside them. */
import { describe, expect, it, vi } from 'vitest';
import type { IEnvironment } from '../../../src/answers/runs';
import type { IBundleHost } from '../../../src/run/bundles';
import type { IRankProgress, IRunInfo } from '../../../src/run/source';
import { FakeSource, runInfo } from '../fakesource';
import { all, byName, open, press, show, text, withPage } from './page';

vi.mock('uplot', async () => ({ default: (await import('./plots')).FakePlot }));

withPage();

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
    const node = open({ source, actions, bundles });
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

  it('looks for the environment of a run that is younger than its record', async () => {
    const records: IEnvironment[] = [{}, {}, { python: '3.11.2', git: null }];
    const environment = vi.fn(async () => records.shift()!);
    const actions = {
      ...{ environment, say: async () => {}, again: async () => {} },
      ...{ change: async () => {}, showCell: async () => {} }
    };
    const node = open({ source: new FakeSource(runInfo(1)), actions });
    await vi.waitFor(() => expect(text(node, '.jpd-about')).toContain('Add tags'));
    vi.useFakeTimers();
    const [, , folded] = node.querySelectorAll<HTMLDetailsElement>('.jpd-about details');
    const toggle = async (isOpen: boolean) => {
      folded.open = isOpen;
      await vi.advanceTimersByTimeAsync(0);
    };
    await toggle(true);
    expect(folded.textContent).toContain('Not recorded.');
    await toggle(false);
    await vi.advanceTimersByTimeAsync(5000);
    expect(environment).toHaveBeenCalledTimes(1);
    await toggle(true);
    await vi.advanceTimersByTimeAsync(1000);
    expect(folded.textContent).toContain('3.11.2');
    await toggle(false);
    await toggle(true);
    await vi.advanceTimersByTimeAsync(5000);
    expect(environment).toHaveBeenCalledTimes(3);
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
    const reason =
      'host h2 (rank 1) has not answered since 12:30:05: ssh: connect timed out; trying again for 300 s';
    const source = new FakeSource(runInfo(2, 'running', { reason }));
    const node = await show(source);
    const detail = node.querySelector<HTMLElement>('.jpd-detail')!;
    expect(detail.hidden).toBe(false);
    expect(detail.textContent?.trim()).toBe(
      'Host h2 (rank 1) has not answered since 12:30:05: ssh: connect timed out; trying again for 300 s'
    );
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
