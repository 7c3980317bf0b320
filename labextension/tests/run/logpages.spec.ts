import { describe, expect, it, vi } from 'vitest';
import { LogPages, pageOfLines } from '../../src/run/logpages';
import { FakeSource, runInfo } from './fakesource';

function make(total: number) {
  const source = new FakeSource(runInfo(1));
  source.lines = Array.from({ length: total }, (_, n) => `line ${n}`);
  const changed = vi.fn();
  const pages = new LogPages((start, count) => source.logPage(0, start, count), changed);
  return { source, pages, changed };
}

describe('the pages of a log', () => {
  it('begin with the end, and fetch a page once', async () => {
    const { source, pages } = make(1000);
    await pages.tail(200);
    expect(pages.total).toBe(1000);
    expect(pages.line(999)?.text).toBe('line 999');
    expect(pages.line(0)).toBeUndefined();
    expect(pages.ensure(0, 30)).toBe(false);
    expect(pages.ensure(0, 30)).toBe(false);
    await vi.waitFor(() => expect(pages.line(0)?.text).toBe('line 0'));
    expect(pages.ensure(0, 30)).toBe(true);
    expect(source.asked).toEqual(['0 -200 200', '0 0 200']);
  });

  it('ask for news whose lines do not come unasked', async () => {
    vi.useFakeTimers();
    try {
      const { source, pages } = make(3);
      pages.take(await source.logPage(0, -9, 9));
      source.asked.length = 0;
      source.lines.push('more');
      pages.begin(9, true);
      expect(source.asked).toEqual([]);
      await vi.advanceTimersByTimeAsync(200);
      expect(source.asked).toEqual(['0 -9 9']);
      expect(pages.line(3)?.text).toBe('more');
    } finally {
      vi.useRealTimers();
    }
  });

  it('of some lines alone ask for as many as an address has room for', async () => {
    const numbers = Array.from({ length: 1000 }, (_, n) => 2 * n);
    const read = vi.fn(async (asked: readonly number[]) =>
      asked.map(n => ({ n, rank: 0, time: 0, text: `${n}` }))
    );
    const pages = new LogPages((start, count) => pageOfLines(numbers, start, count, read), vi.fn());
    const found: number[] = [];
    for await (const lines of pages.read(0, 1000)) {
      found.push(...lines.map(line => Number(line.text)));
    }
    expect(found).toEqual(numbers);
    expect(Math.max(...read.mock.calls.map(([asked]) => asked.length))).toBe(200);
  });

  it('keep few pages of a log of any length', async () => {
    const { pages } = make(100_000);
    await pages.tail(200);
    for (let first = 0; first < 100_000; first += 1000) {
      pages.ensure(first, first + 30);
      await new Promise(resolve => setTimeout(resolve));
      expect(pages.line(first)).toBeDefined();
    }
    const kept = Array.from({ length: 100_000 }, (_, n) => n).filter(n => pages.line(n));
    expect(kept.length).toBeLessThanOrEqual(36 * 200);
    expect(pages.line(99_000)).toBeDefined();
  });

  it('read again what may have changed when the log has grown', async () => {
    const { source, pages } = make(10);
    await pages.tail(200);
    source.lines[9] = 'line 9, finished';
    source.lines.push('line 10');
    pages.grown(11);
    expect(pages.line(9)?.text).toBe('line 9'); // the old one, rather than nothing, until then
    pages.ensure(0, 11);
    await vi.waitFor(() => expect(pages.line(9)?.text).toBe('line 9, finished'));
    expect(pages.line(10)?.text).toBe('line 10');
  });

  it('take what comes unasked, and of an older answer what is missing alone', async () => {
    const { source, pages } = make(3);
    const older = pages.tail(200);
    source.lines.push('line 3');
    const page = await source.logPage(0, 2, 10);
    page.lines[0].text = 'line 2, newer';
    pages.take(page);
    await older;
    expect(pages.total).toBe(4);
    expect([0, 1, 2, 3].map(n => pages.line(n)?.text)).toEqual([
      'line 0',
      'line 1',
      'line 2, newer',
      'line 3'
    ]);
  });

  it('end with every line of a bar that is rewritten, those of several ranks as one', async () => {
    const bar = (rank: number, ...texts: string[]) => texts.map(text => ({ rank, time: 0, text }));
    let partial = [...bar(0, 'epochs 1/2', 'batches 3/4'), ...bar(1, 'epochs 1/2', 'batches 2/4')];
    const pages = new LogPages(
      () =>
        Promise.resolve({
          attempt: 0,
          start: 0,
          total: 0,
          settled: 0,
          complete: false,
          lines: [],
          partial
        }),
      () => undefined
    );
    const rows = () =>
      Array.from({ length: pages.rows }, (_, n) => [pages.line(n)?.ranks, pages.line(n)?.text]);
    await pages.tail(200);
    expect(rows()).toEqual([
      [[0, 1], 'epochs 1/2'],
      [[0], 'batches 3/4'],
      [[1], 'batches 2/4']
    ]);
    partial = Array.from({ length: 3 }, (_, rank) =>
      bar(rank, 'epochs', `batch ${rank}`, `at ${rank}`)
    ).flat();
    await pages.tail(200);
    expect(rows().length).toBe(1 + 2 * 3);
  });

  it('take nothing that was asked for before all was forgotten', async () => {
    const { source, pages, changed } = make(1000);
    await pages.tail(200);
    pages.ensure(0, 30);
    pages.clear();
    source.lines = ['of another attempt'];
    await pages.tail(200);
    await vi.waitFor(() => expect(changed).toHaveBeenCalledTimes(3));
    expect([pages.total, pages.line(0)?.text]).toEqual([1, 'of another attempt']);
    expect(pages.line(1)).toBeUndefined();
  });

  it('ask for the end once at a time, and once more if asked meanwhile', async () => {
    const { source, pages } = make(10);
    const first = pages.tail(200);
    void pages.tail(200);
    void pages.tail(200);
    await first;
    expect(source.asked.length).toBe(2);
  });

  it('say what went wrong, and recover', async () => {
    let broken = true;
    const pages = new LogPages(
      async () => {
        if (broken) {
          throw new Error('disk on fire');
        }
        return { start: 0, total: 0, complete: true, lines: [] };
      },
      () => undefined
    );
    await pages.tail(10);
    expect(pages.error).toBe('disk on fire');
    broken = false;
    await pages.tail(10);
    expect(pages.error).toBeNull();
  });

  it('ask again for a page that cannot be read, but not at each drawing', async () => {
    vi.useFakeTimers();
    try {
      const { source, pages, changed } = make(1000);
      await pages.tail(200);
      const frame = () => void setTimeout(() => pages.ensure(0, 30), 16); // a list is drawn anew
      changed.mockImplementation(frame);
      const read = source.logPage.bind(source);
      let asked = 0;
      source.logPage = () => {
        asked++;
        return Promise.reject(new Error('The run was removed.'));
      };
      pages.ensure(0, 30);
      await vi.advanceTimersByTimeAsync(1000);
      expect([asked, pages.error]).toEqual([1, 'The run was removed.']);
      source.logPage = read;
      await vi.advanceTimersByTimeAsync(2000);
      expect([pages.line(0)?.text, pages.error]).toEqual(['line 0', null]);
    } finally {
      vi.useRealTimers();
    }
  });
});
