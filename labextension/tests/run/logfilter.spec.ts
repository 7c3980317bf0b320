import { describe, expect, it, vi } from 'vitest';
import { joined } from '../../src/run/logsearch';
import { FakeSource, runInfo } from './fakesource';
import { all, byName, show, text, withPage } from './view/page';

const ERROR = {
  kind: 'exception' as const,
  type: 'ValueError',
  message: 'no',
  text: 'Traceback …',
  frames: [],
  exit_code: 1,
  signal_name: null,
  peak_memory_bytes: null,
  collateral: false,
  host: 'node-0'
};
const CARD = {
  title: 'rank 1 failed first',
  about: '',
  what: 'ValueError: no',
  hints: [],
  causes: [],
  places: [],
  others: [],
  files: '',
  parts: []
};

withPage();

describe('the lines of a log that are shown', () => {
  const lines = (node: HTMLElement) => all(node, '.jpd-log .jpd-row').map(row => row.textContent);
  const level = (node: HTMLElement, value: string) => {
    const list = node.querySelector<HTMLSelectElement>('[aria-label="Show only lines of a level"]');
    Object.assign(list ?? {}, { value });
    list?.dispatchEvent(new Event('change'));
  };
  const type = (node: HTMLElement, value: string) => {
    const field = node.querySelector<HTMLInputElement>('.jpd-search') as HTMLInputElement;
    field.value = value;
    field.dispatchEvent(new Event('input'));
  };

  it('are those that match, with their own numbers, also while the log grows', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = ['begin', 'step 1', 'note', 'step 2'];
    const node = await show(source);
    await vi.waitFor(() => expect(lines(node)).toContain('3note'));
    type(node, 'step');
    byName(node, 'Show only the lines that match').click();
    await vi.waitFor(() => expect(lines(node)).toEqual(['2step 1', '4step 2']));
    expect(source.asked).toContain('lines 1,3');
    byName(node, 'Previous hit').click();
    await vi.waitFor(() => expect(text(node, '.jpd-row-current')).toBe('4step 2'));
    source.grow('other', 'step 3');
    await vi.waitFor(() => expect(lines(node)).toEqual(['2step 1', '4step 2', '6step 3']), 4000);
    type(node, 'nowhere');
    const message = () => text(node, '.jpd-log-message:not([hidden])');
    await vi.waitFor(() => expect(message()).toBe('No line matches'));
    byName(node, 'Show only the lines that match').click();
    await vi.waitFor(() => expect(lines(node).length).toBe(6));
  });

  it('are also those that come while a search is under way', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = ['ERROR 1'];
    const node = await show(source);
    await vi.waitFor(() => expect(lines(node)).toEqual(['1ERROR 1']));
    const held: { answer?: () => void } = {};
    const search = source.logSearch.bind(source);
    vi.spyOn(source, 'logSearch').mockImplementationOnce(async (...asked) => {
      const found = await search(...asked);
      await new Promise<void>(resolve => (held.answer = resolve));
      return found;
    });
    level(node, 'error');
    await vi.waitFor(() => expect(held.answer).toBeDefined());
    source.grow('ERROR 2');
    held.answer?.();
    await vi.waitFor(() => expect(lines(node)).toEqual(['1ERROR 1', '2ERROR 2']), 4000);
  });

  it('are the last ones of very many, and those that come after them', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = Array.from({ length: 10_500 }, (_, at) => `ERROR ${at}`);
    const node = await show(source);
    await vi.waitFor(() => expect(lines(node)).toContain('10500ERROR 10499'));
    level(node, 'error');
    await vi.waitFor(() => expect(text(node, '.jpd-hits')).toBe('10,500'));
    await vi.waitFor(() => expect(lines(node).at(-1)).toBe('10500ERROR 10499'));
    byName(node, 'Previous hit').click();
    await vi.waitFor(() => expect(text(node, '.jpd-row-current')).toBe('10500ERROR 10499'));
    expect(text(node, '.jpd-hits')).toBe('10,500/10,500');
    source.grow('ERROR new');
    await vi.waitFor(() =>
      expect(lines(node).slice(-2)).toEqual(['10500ERROR 10499', '10501ERROR new'])
    );
    expect(text(node, '.jpd-row-current')).toBe('10500ERROR 10499');
    expect(text(node, '.jpd-hits')).toBe('10,500/10,501');
    byName(node, 'Next hit').click();
    await vi.waitFor(() => expect(text(node, '.jpd-row-current')).toBe('10501ERROR new'));
    // As many others as a search names: what was shown is not what comes before them.
    source.grow(...Array.from({ length: 10_001 }, (_, at) => `ERROR other ${at}`));
    await vi.waitFor(() => expect(lines(node).at(-1)).toBe('20502ERROR other 10000'));
    expect(text(node, '.jpd-hits')).toMatch(/20,502$/);
  });

  it('are not kept without a limit', () => {
    const hits = (first: number, end: number) =>
      Array.from({ length: end - first }, (_, at) => first + at);
    expect(joined(hits(0, 5), hits(3, 8), -1)).toEqual(hits(0, 8));
    expect(joined(hits(0, 5), hits(5, 8), 2)).toEqual(hits(5, 8));
    const [known, last] = [hits(0, 100_000), hits(99_000, 100_001)];
    expect(joined(known, last, -1)).toEqual(hits(50_001, 100_001));
    expect(joined(known, last, 90_000)).toEqual(hits(50_001, 100_001));
    // The place of somebody who reads there is not lost.
    expect(joined(known, last, 40_000)).toEqual(hits(40_000, 100_001));
  });

  it('are those of a level, whoever has logged them', async () => {
    const source = new FakeSource(runInfo(1));
    source.lines = [
      'INFO: an ERROR_CODE of 0',
      'WARNING:root:careful',
      '\u001b[31mERROR\u001b[0m: it broke',
      'W0000 00:00:1 cuda.cc:2] slow',
      'E0000 00:00:1 cuda.cc:2] broken',
      'Traceback (most recent call last):',
      '  File "a.py", line 1, in <module>',
      'torch.OutOfMemoryError: much',
      'a.py:3: UserWarning: perhaps',
      'no error at all'
    ];
    const node = await show(source);
    await vi.waitFor(() => expect(lines(node).length).toBe(10));
    const numbers = () => all(node, '.jpd-log .jpd-number').map(one => Number(one.textContent));
    level(node, 'error');
    await vi.waitFor(() => expect(numbers()).toEqual([3, 5, 6, 8]));
    type(node, 'broke');
    await vi.waitFor(() => expect(numbers()).toEqual([3, 5]));
    type(node, '');
    level(node, 'warning');
    await vi.waitFor(() => expect(numbers()).toEqual([2, 3, 4, 5, 6, 8, 9]));
    level(node, 'all');
    await vi.waitFor(() => expect(numbers().length).toBe(10));
  });

  it('begin at the traceback of the rank that failed first', async () => {
    const source = new FakeSource(runInfo(2, 'failed', { attempt: 1 }));
    source.lines = ['first', 'Traceback (most recent call last):', 'ValueError: no', 'last'];
    source.cardTold = CARD;
    source.errorList = [{ ...ERROR, rank: 1 }];
    const node = await show(source);
    await vi.waitFor(() => byName(node, 'Go to the traceback in the log'));
    level(node, 'warning');
    const attempts = node.querySelector<HTMLSelectElement>('.jpd-logs select')!;
    attempts.selectedIndex = 1;
    attempts.dispatchEvent(new Event('change'));
    byName(node, 'Go to the traceback in the log').click();
    await vi.waitFor(() => expect(text(node, '.jpd-row-current')).toMatch(/^2Traceback/));
    expect(lines(node).length).toBe(4);
    expect(text(node, '[role=tab][aria-selected=true]')).toBe('1');
    expect(attempts.selectedIndex).toBe(0);
    expect(source.asked.at(-1)).not.toContain('attempt');
  });
});
