import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { logRange, logTicks, tickTexts } from '../../src/run/axes';
import { curveCsv } from '../../src/run/csv';
import { bytes, count, duration, parseRanges, ranges, value } from '../../src/run/format';
import { badRanks, lastText, lastValues, specialText } from '../../src/run/charttitle';
import { chartData } from '../../src/run/series';
import { english } from '../../src/run/trans';
import { smooth } from '../../src/run/smooth';
import type { ICurve } from '../../src/run/source';
import * as virtual from '../../src/run/virtual';

const geometry = fc.record({
  rows: fc.integer({ min: 0, max: 50_000_000 }),
  rowHeight: fc.integer({ min: 10, max: 40 }),
  viewport: fc.integer({ min: 20, max: 2000 })
});

describe('a virtual list', () => {
  it('is never higher than a browser can bear, and reaches its last row', () => {
    fc.assert(
      fc.property(geometry, g => {
        expect(virtual.contentHeight(g)).toBeLessThanOrEqual(virtual.MAX_HEIGHT);
        const end = virtual.offsetOf(virtual.contentHeight(g) - g.viewport, g);
        const last = virtual.window(end, g).end;
        expect(last).toBe(g.rows);
        expect(virtual.window(0, g).first).toBe(0);
      })
    );
  });

  it('comes back to where it was from the scroll bar', () => {
    fc.assert(
      fc.property(geometry, fc.double({ min: 0, max: 1, noNaN: true }), (g, part) => {
        const offset = part * virtual.maxOffset(g);
        const back = virtual.offsetOf(virtual.scrollTopOf(offset, g), g);
        expect(Math.abs(back - offset)).toBeLessThanOrEqual(1e-6 * (1 + offset));
      })
    );
  });

  it('draws all that is in sight and little more', () => {
    fc.assert(
      fc.property(geometry, fc.double({ min: 0, max: 1, noNaN: true }), (g, part) => {
        const offset = part * virtual.maxOffset(g);
        const { first, end } = virtual.window(offset, g, 3);
        expect(first * g.rowHeight).toBeLessThanOrEqual(offset);
        expect(end * g.rowHeight).toBeGreaterThanOrEqual(
          Math.min(offset + g.viewport, g.rows * g.rowHeight)
        );
        expect(end - first).toBeLessThanOrEqual(g.viewport / g.rowHeight + 8);
      })
    );
  });

  it('brings a row into sight', () => {
    fc.assert(
      fc.property(geometry, fc.nat(), fc.nat(), (g, row, from) => {
        fc.pre(row < g.rows && g.viewport >= g.rowHeight);
        const offset = virtual.reveal(row, virtual.clamp(from, g), g);
        expect(row * g.rowHeight).toBeGreaterThanOrEqual(offset - 1);
        expect((row + 1) * g.rowHeight).toBeLessThanOrEqual(offset + g.viewport + 1);
      })
    );
  });
});

describe('texts', () => {
  it.each([
    [0.84, '0.8 s'],
    [12.9, '12 s'],
    [187, '3:07'],
    [3723, '1:02:03']
  ])('%d seconds are %s', (seconds, text) => expect(duration(seconds)).toBe(text));

  it.each([
    [0, '0'],
    [0.123456, '0.1235'],
    [0.0000123, '1.23e-5'],
    [12345678, '1.23e+7'],
    [NaN, '–'],
    [null, '–']
  ])('the value %d is %s', (x, text) => expect(value(x)).toBe(text));

  it('counts and measures', () => {
    expect(count(1234567)).toBe('1,234,567');
    expect(bytes(999)).toBe('999 B');
    expect(bytes(1_500_000)).toBe('1.50 MB');
  });

  it('folds ranks, and reads what it wrote', () => {
    expect(ranges([0, 1, 2, 3, 5, 7, 8])).toBe('0-3,5,7-8');
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(999)), ranks => {
        expect(parseRanges(ranges(ranks), 1000)).toEqual([...ranks].sort((a, b) => a - b));
      })
    );
  });

  it.each(['x', '1-', '-3', '1;2', '1-2-3'])('%j names no ranks', text =>
    expect(parseRanges(text, 8)).toBeNull()
  );

  it('names no ranks that there are not', () =>
    expect(parseRanges('6-99999999999', 8)).toEqual([6, 7]));
});

describe('smoothing', () => {
  it('leaves a constant as it is, and gaps where they are', () => {
    expect(
      smooth([2, null, 2, undefined, 2], 0.9).map(y => y && Math.round(y * 1e9) / 1e9)
    ).toEqual([2, null, 2, undefined, 2]);
  });

  it('stays within what it smooths', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: -1e6, max: 1e6, noNaN: true }), { minLength: 1 }),
        fc.double({ min: 0, max: 0.99, noNaN: true }),
        (ys, alpha) => {
          const smoothed = smooth(ys, alpha) as number[];
          expect(Math.max(...smoothed)).toBeLessThanOrEqual(Math.max(...ys) + 1e-3);
          expect(Math.min(...smoothed)).toBeGreaterThanOrEqual(Math.min(...ys) - 1e-3);
        }
      )
    );
  });
});

const curve: ICurve = {
  name: 'loss, train',
  band: null,
  ranks: [
    { rank: 0, steps: [0, 1, 3], values: [3, null, 1], times: [10, 11, 13] },
    { rank: 1, steps: [1, 2], values: [5, -4], times: [11, 12] }
  ]
};
const drawn = { smoothing: 0, log: false, ranks: new Set([0, 1]), band: false, raw: true };

describe('a chart’s lines', () => {
  it('share their steps: what is missing connects, what was not a number breaks', () => {
    const { xs, lines } = chartData(curve, drawn);
    expect(xs).toEqual([0, 1, 2, 3]);
    expect(lines.map(line => line.ys)).toEqual([
      [3, null, undefined, 1],
      [undefined, 5, -4, undefined]
    ]);
  });

  it('leave out what a logarithm cannot show, and ranks that are switched off', () => {
    const { lines } = chartData(curve, { ...drawn, log: true, ranks: new Set([1]) });
    expect(lines.map(line => line.ys)).toEqual([[5, null]]);
  });

  it('show the raw line behind the smoothed one', () => {
    const { lines } = chartData(curve, { ...drawn, smoothing: 0.5 });
    expect(lines.map(line => [line.rank, line.raw])).toEqual([
      [0, true],
      [1, true],
      [0, false],
      [1, false]
    ]);
  });

  it('end with the last step’s value', () => {
    const last = lastValues(curve);
    expect(last).toEqual({ step: 3, mean: -1.5, min: -4, max: 1, ranks: 2 });
    expect(last && lastText(last, english)).toBe('mean -1.5 (-4 – 1)');
    expect(lastValues({ name: 'x', ranks: [], band: null })).toBeNull();
    const band = { steps: [1, 2], mean: [5, 6], min: [1, 2], max: [9, 10] };
    expect(lastValues({ ...curve, band })).toMatchObject({ step: 2, mean: 6, min: 2, max: 10 });
  });

  it('end with the value of a rank that is drawn', () => {
    const last = lastValues(curve, new Set([1]));
    expect(last).toMatchObject({ step: 2, mean: -4 });
    expect(last && lastText(last, english)).toBe('-4');
  });

  it('say which ranks went bad, how and when', () => {
    expect(specialText(curve, english)).toBe('');
    const special = (step: number, value: string) => [{ step, value }];
    const ranks = [
      { ...curve.ranks[0], special: special(9, 'Infinity') },
      { ...curve.ranks[1], values: [5, null], special: special(7, 'NaN') },
      { ...curve.ranks[1], rank: 2, special: [] }
    ];
    const text = specialText({ ...curve, ranks }, english);
    expect(text).toBe('NaN from step 7 [1], Infinity from step 9 [0]');
    // The last value of the other one is a number again.
    const bad = badRanks([{ ...curve, ranks }], english);
    expect([...bad]).toEqual([[1, 'loss, train is NaN from step 7']]);
    expect(curveCsv({ ...curve, ranks: [{ ...curve.ranks[0], special: special(1, 'NaN') }] })).toBe(
      'rank,step,"loss, train",time\r\n0,0,3,10\r\n0,1,NaN,11\r\n0,3,1,13\r\n'
    );
  });

  it('become a table', () => {
    expect(curveCsv(curve)).toBe(
      'rank,step,"loss, train",time\r\n0,0,3,10\r\n0,1,,11\r\n0,3,1,13\r\n1,1,5,11\r\n1,2,-4,12\r\n'
    );
    expect(curveCsv({ name: '=SUM(A1)', ranks: [], band: null })).toContain("'=SUM(A1)");
  });
});

describe('the axes', () => {
  const positive = fc.double({ min: 1e-99, max: 1e99, noNaN: true });

  it.each([
    [0.3098, 0.3123, [0.31, 0.311, 0.312]],
    [0.08, 1.05, [0.1, 0.2, 0.5, 1]],
    [1e-5, 0.2, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]],
    [1.5, 6, [2, 5]],
    [1e-30, 1e30, [1e-30, 1e-20, 1e-10, 1, 1e10, 1e20, 1e30]]
  ])('from %d to %d have ticks on a logarithmic axis', (min, max, ticks) => {
    const found = logTicks(min, max);
    expect(found.length).toBeGreaterThan(1);
    if (ticks.length > 2) {
      expect(found.map(tick => Number(tick.toPrecision(9)))).toEqual(ticks);
    }
  });

  it('leave the data most of a logarithmic axis', () => {
    fc.assert(
      fc.property(positive, positive, (a, b) => {
        const [min, max] = [Math.min(a, b), Math.max(a, b)];
        const [first, last] = logRange(min, max) as [number, number];
        expect(first).toBeLessThan(min);
        expect(last).toBeGreaterThan(max);
        const part = Math.log(max / min) / Math.log(last / first);
        expect(max / min < 1.001 || part > 0.8).toBe(true);
        expect(logTicks(first, last).length).toBeLessThan(12);
      })
    );
  });

  it('tell ticks apart', () => {
    expect(tickTexts([0, 0.5, 1])).toEqual(['0', '0.5', '1']);
    expect(tickTexts([0.99981, 0.99982])).toEqual(['0.99981', '0.99982']);
    expect(tickTexts([1234567, 1234568])).toEqual(['1.234567e+6', '1.234568e+6']);
  });
});
