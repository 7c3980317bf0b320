/** The logs. */
import { describe, expect, it, vi } from 'vitest';
import { FakeSource, runInfo } from '../fakesource';
import { all, byName, dispose, press, show, text, withPage } from './page';

vi.mock('uplot', async () => ({ default: (await import('./plots')).FakePlot }));

withPage();

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

  it('follow the end when their room grows while lines come', async () => {
    const height = vi.spyOn(HTMLElement.prototype, 'clientHeight', 'get').mockReturnValue(54);
    const source = new FakeSource(runInfo(1));
    source.lines = Array.from({ length: 31 }, (_, n) => `line ${n}`);
    const node = await show(source);
    const log = node.querySelector<HTMLElement>('.jpd-log') as HTMLElement;
    await vi.waitFor(() => expect(log.scrollTop).toBe(31 * 18 - 54));
    // No frame of before must be left, which would draw what comes now.
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const frames: FrameRequestCallback[] = [];
    const later = vi
      .spyOn(window, 'requestAnimationFrame')
      .mockImplementation(frame => frames.push(frame));
    source.grow('more', 'and more');
    await vi.waitFor(() => expect(frames.length).toBeGreaterThan(0));
    // As the browser does: the end of what was drawn is now further up.
    height.mockReturnValue(180);
    log.scrollTop = 31 * 18 - 180;
    log.dispatchEvent(new Event('scroll'));
    later.mockRestore();
    frames.forEach(frame => frame(0));
    await vi.waitFor(() => expect(all(node, '.jpd-text').at(-1)?.textContent).toBe('and more'));
    expect(node.querySelector<HTMLElement>('.jpd-news')?.hidden).toBe(true);
    expect(log.scrollTop).toBe(33 * 18 - 180);
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
    dispose();
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
