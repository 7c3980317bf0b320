import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { framed } from '../../src/run/bundles';
import type { IContext } from '../../src/run/context';
import { Media } from '../../src/run/media';
import { percentOf, progressText } from '../../src/run/progresstext';
import { resultsNode } from '../../src/run/results';
import type { IContent, IMediaSeries, IResult } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { FakeSource, runInfo } from './fakesource';

let abort: AbortController;
let source: FakeSource;
let context: IContext;

beforeEach(() => {
  vi.useFakeTimers();
  abort = new AbortController();
  source = new FakeSource(runInfo(2));
  context = {
    source,
    trans: english,
    signal: abort.signal,
    announce: () => undefined,
    root: document.body,
    bundles: framed
  };
  Element.prototype.getBoundingClientRect = () => new DOMRect(0, 0, 100, 100);
});
afterEach(() => {
  abort.abort();
  document.body.replaceChildren();
  vi.useRealTimers();
});

const series = (name: string, count: number): IMediaSeries => ({
  name,
  type: 'text',
  count,
  first_step: 0,
  last_step: 10 * (count - 1),
  ranks: [0, 1]
});

describe('media', () => {
  let list: IMediaSeries[];
  const content = (step: number): IContent[] => [{ mime: 'text/plain', text: `at ${step}` }];

  function part(): Media {
    source.media = async () => ({ attempt: 0, version: 1, series: list });
    source.mediaPage = async (name, start) => {
      source.asked.push(`${name} ${start}`);
      const exhibits = [{ ranks: [0, 1], time: 1, contents: content(10 * start), metadata: {} }];
      return { name, start, total: 3, steps: [{ step: 10 * start, exhibits, more_ranks: 0 }] };
    };
    const found = new Media(context);
    document.body.appendChild(found.node);
    return found;
  }
  const settle = () => vi.advanceTimersByTimeAsync(300);
  const slider = (found: Media) =>
    found.node.querySelector<HTMLInputElement>('.jpd-media-one input')!;

  it('follows the newest step, and stays at one that was chosen', async () => {
    list = [series('note', 2)];
    const found = part();
    found.changed();
    await settle();
    expect(found.node.hidden).toBe(false);
    expect(found.node.textContent).toContain('step 10 · 2/2');
    expect(found.node.textContent).toContain('at 10');
    list = [series('note', 3)];
    found.changed();
    await settle();
    expect(found.node.textContent).toContain('step 20 · 3/3');
    slider(found).value = '0';
    slider(found).dispatchEvent(new Event('input'));
    await settle();
    expect(found.node.textContent).toContain('step 0 · 1/3');
    list = [series('note', 4)];
    found.changed();
    await settle();
    expect(found.node.textContent).toContain('step 0 · 1/4');
    expect(found.node.querySelectorAll('.jpd-display-cell')).toHaveLength(1);
  });

  it('goes to one step of all names, and follows the newest one again at its end', async () => {
    list = [series('note', 3), { ...series('sparse', 2), last_step: 40 }, series('once', 1)];
    const found = part();
    found.changed();
    await settle();
    const step = found.node.querySelector('[aria-label="Step of all media"]') as HTMLInputElement;
    expect([step.min, step.max, step.value]).toEqual(['0', '40', '40']);
    const at = () =>
      [...found.node.querySelectorAll('.jpd-media-one output')].map(one => one.textContent);
    const move = async (value: string) => {
      step.value = value;
      step.dispatchEvent(new Event('input'));
      await settle();
    };
    await move('10');
    expect(at()).toEqual(['step 10 · 2/3', 'step 0 · 1/2', 'step 0']);
    list = [series('note', 4), list[1], list[2]];
    found.changed();
    await settle();
    expect(at()[0]).toBe('step 10 · 2/4');
    await move('40');
    expect(at()[0]).toBe('step 30 · 4/4');
    list = [series('note', 6), list[1], list[2]];
    found.changed();
    await settle();
    expect([at()[0], step.value]).toEqual(['step 50 · 6/6', '50']);
  });

  it('shows some of very many names, and all of them when asked', async () => {
    list = Array.from({ length: 40 }, (_, i) => series(`n${i}`, 1));
    const found = part();
    found.changed();
    await settle();
    expect(found.node.querySelectorAll('.jpd-media-one')).toHaveLength(12);
    const all = [...found.node.querySelectorAll('button')].find(one =>
      /all 40/.test(one.textContent!)
    );
    all?.click();
    await settle();
    expect(found.node.querySelectorAll('.jpd-media-one')).toHaveLength(40);
  });

  it('draws a histogram, and none that is made up', async () => {
    const told = { counts: [1, 3], low: 0, high: 2, mean: 1, count: 5, special: 1 };
    const mime = 'application/vnd.jupyter-dist.histogram+json';
    list = [series('good', 1), series('bad', 1)];
    const found = part();
    source.mediaPage = async name => {
      const json = name === 'good' ? told : { ...told, counts: ['<b>'] };
      const exhibits = [{ ranks: [0], time: 1, contents: [{ mime, json }], metadata: {} }];
      return { name, start: 0, total: 1, steps: [{ step: 0, exhibits, more_ranks: 0 }] };
    };
    found.changed();
    await settle();
    expect(found.node.querySelectorAll('path')).toHaveLength(1);
    expect(found.node.textContent).toContain('mean 1 · 5 values · 1 not finite');
    const ticks = [...found.node.querySelectorAll('.jpd-histogram-axis > span')];
    expect(ticks.map(one => one.textContent)).toEqual(['0', '1', '2']);
    expect(found.node.textContent).toContain('The histogram cannot be shown.');
  });
});

describe('results', () => {
  const result = (rank: number, loss: number | null): IResult => ({
    ranks: [rank],
    repr: `{'loss': ${loss}}`,
    error: null,
    bytes: 9,
    cells: [{ name: 'loss', text: loss === null ? 'nan' : '', number: loss }]
  });
  const rows = (node: HTMLElement) =>
    [...node.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.textContent));

  it('stand in a table that sorts, what is not finite last', () => {
    const results = [result(0, 0.5), result(1, null), { ...result(2, 0.25), ranks: [2, 3] }];
    const node = resultsNode(results, 4, context);
    expect(rows(node)).toEqual([
      ...[
        ['Rank', 'loss'],
        ['0', '0.5'],
        ['1', 'nan'],
        ['2-3', '0.25']
      ],
      ...[
        ['mean', 'nan'],
        ['min', '0.25'],
        ['max', '0.5']
      ]
    ]);
    const head = node.querySelectorAll('button')[1];
    head.click();
    expect(
      rows(node)
        .slice(1, 4)
        .map(row => row[0])
    ).toEqual(['2-3', '0', '1']);
    head.click();
    expect(
      rows(node)
        .slice(1, 4)
        .map(row => row[0])
    ).toEqual(['0', '2-3', '1']);
  });

  it('stay as they were where there is little to tell, and an array says what it is', () => {
    const array = 'Tensor 1000 float32, 0 to 1';
    const node = resultsNode(
      [
        { ...result(0, 1), cells: [{ name: '0', text: '', number: 1 }] },
        { ranks: [1], repr: 'x'.repeat(999), error: null, bytes: 4000, array }
      ],
      2,
      context
    );
    expect(node.querySelector('table')).toBeNull();
    const shown = [...node.querySelectorAll('.jpd-result')].map(row => row.textContent);
    expect(shown).toEqual(["[0]{'loss': 1}", `[1]${array}`]);
  });
});

describe('a bar', () => {
  const bar = { n: 2_000_000, total: 4_000_000, desc: 'data', rate: 1_000_000 };

  it('says its pace, the time that is left and what it says itself', () => {
    expect(progressText({ ...bar, unit: 'B', note: 'of a.bin' }, english)).toBe(
      'data 2.00 MB/4.00 MB · 1.00 MB/s · 2.0 s left · of a.bin'
    );
    expect(progressText({ n: 1, total: 4, desc: '', rate: 0.5, unit: 'file' }, english)).toBe(
      '1/4 · 0.5 file/s · 6.0 s left'
    );
    expect(progressText(bar, english, true)).toBe('data 2,000,000/4,000,000');
  });

  it('has as many percent as are done, and 100 only at its end', () => {
    const percents = [0, 29, 57, 99.9, 100].map(n => percentOf({ ...bar, n, total: 100 }));
    expect(percents).toEqual([0, 29, 57, 99, 100]);
    expect(percentOf({ ...bar, n: 5, total: 4 })).toBe(100);
    expect(percentOf({ ...bar, total: null })).toBeNull();
  });
});
