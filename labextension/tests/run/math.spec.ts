import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { logRange, logTicks, tickTexts } from '../../src/run/ticks';
import { curveCsv } from '../../src/run/csv';
import { bytes, count, duration, parseRanges, ranges, value } from '../../src/run/format';
import { badRanks, equalText, lastText, lastValues, specialText } from '../../src/run/charttitle';
import { chartData } from '../../src/run/series';
import { stateName, type IContext } from '../../src/run/context';
import { tipRows } from '../../src/run/charttip';
import { english } from '../../src/run/trans';
import { smooth } from '../../src/run/smooth';
import type { ICurve, State } from '../../src/run/source';
import * as virtual from '../../src/run/rowwindow';

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
    [12345678, '1.23e7'],
    [1_000_000, '1e6'],
    [0.00015, '1.5e-4'],
    [NaN, '–'],
    [null, '–']
  ])('the value %d is %s', (x, text) => expect(value(x)).toBe(text));

  it('counts and measures', () => {
    expect(count(1234567)).toBe('1,234,567');
    expect(count(0.1 + 0.2)).toBe('0.3');
    expect(count(1234.56789)).toBe('1,234.568');
    expect(bytes(999)).toBe('999 B');
    expect(bytes(512.3333)).toBe('512 B');
    expect(bytes(999_400)).toBe('999 kB');
    expect(bytes(999_600)).toBe('1.00 MB');
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

  it('say how many values a logarithm has no place for, and which lines are equal', () => {
    expect(chartData(curve, drawn).dropped).toBe(0);
    expect(chartData(curve, { ...drawn, log: true }).dropped).toBe(1);
    const [one] = curve.ranks;
    const name = (line: number) => `run ${line}`;
    const told = (...ranks: typeof curve.ranks) =>
      equalText(
        chartData({ ...curve, ranks }, { ...drawn, ranks: new Set([0, 1, 2]) }),
        name,
        english
      );
    expect(told(...curve.ranks)).toBe('');
    expect(told(one, { ...one, rank: 1 })).toBe('all lines are equal');
    expect(told(curve.ranks[1], { ...one, rank: 0 }, { ...one, rank: 2 })).toBe('run 0 = run 2');
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

  it('are the mean as far as all ranks are; what some are ahead is a line of its own', () => {
    const band = {
      steps: [0, 1, 2, 3],
      mean: [4, 3, 1, 0],
      min: [3, 2, 1, 0],
      max: [5, 4, 1, 0],
      times: [],
      whole: 2,
      ranks: [7, 1]
    };
    const live = { ...curve, ranks: [], band };
    const of = (whole: number) => {
      const data = chartData({ ...live, band: { ...band, whole } }, { ...drawn, band: true });
      return ['mean', 'some'].map(rank => data.lines.find(line => line.rank === rank)?.ys);
    };
    const none = undefined;
    expect(of(2)).toEqual([
      [4, 3, none, none],
      [none, 3, 1, 0]
    ]);
    // The line is there before it has a point, or the chart would be made anew.
    expect(of(4)).toEqual([
      [4, 3, 1, 0],
      [none, none, none, none]
    ]);
    const last = { step: 1, mean: 3, min: 2, max: 4, ranks: 64, of: 64 };
    const data = chartData(live, { ...drawn, band: true });
    const context = { trans: english } as unknown as IContext;
    const tip = (idx: number) =>
      tipRows(
        { ...live, last },
        data,
        idx,
        () => 0,
        context,
        () => ''
      ).map(row => row.textContent);
    expect(tip(1)).toEqual(['max 4', 'mean 3', 'min 2']);
    expect(tip(2)).toEqual(['max 1', 'mean of 7 of 64 ranks 1', 'min 1']);
  });

  it('have the values of one step that all ranks have reached in their title', () => {
    const last = { step: 1, mean: 4.5, min: 4, max: 5, ranks: 2, of: 2 };
    const [first, second] = curve.ranks;
    const whole = {
      ...curve,
      last,
      ranks: [
        { ...first, last: 4 },
        { ...second, last: 5 }
      ]
    };
    expect(lastValues(whole)).toEqual(last);
    expect(lastText(last, english)).toBe('mean 4.5 (4 – 5)');
    expect(lastText({ ...last, of: 64 }, english)).toBe('mean 4.5 (4 – 5), 2 of 64 ranks');
    // Also of some of the ranks; one alone ends with its own last value.
    expect(lastValues(whole, new Set([0, 1]))).toEqual({ ...last });
    const alone = lastValues(whole, new Set([0]));
    expect(alone).toEqual({ step: 3, mean: 1, min: 1, max: 1, ranks: 1, of: 1 });
    expect(alone && lastText(alone, english)).toBe('1');
    expect(lastValues({ ...whole, last: null })).toBeNull();
  });

  it('of runs end with the last value of each', () => {
    expect(lastValues(curve)).toEqual({ step: 3, mean: -1.5, min: -4, max: 1, ranks: 2, of: 2 });
    expect(lastValues({ name: 'x', ranks: [], band: null })).toBeNull();
  });

  it('say which ranks went bad, how and when', () => {
    expect(specialText(curve, english)).toBe('');
    const special = (step: number, value: string) => [{ step, value }];
    const bad = (value: string, step: number, since: number | null, count = 1) => ({
      not_finite: { count, last: { step, value }, since }
    });
    const [zero, one] = curve.ranks;
    const ranks = [
      { ...zero, ...bad('Infinity', 12, 9, 4) },
      { ...one, values: [5, null], ...bad('NaN', 8, 7, 2) },
      { ...one, rank: 2 }
    ];
    const text = specialText({ ...curve, ranks }, english);
    expect(text).toBe('NaN from step 7 [1], Infinity from step 9 [0]');
    const told = [{ rank: 1, name: 'loss', value: 'NaN', since: 7 }];
    expect([...badRanks(told, english)]).toEqual([[1, 'loss is NaN from step 7']]);
    // Where the last values are numbers again, only how many were none, and where.
    const again = [
      { ...zero, ...bad('Infinity', 700, null) },
      { ...one, ...bad('NaN', 710, null, 3) }
    ];
    expect(specialText({ ...curve, ranks: again }, english)).toBe(
      'Infinity at step 700 [0], 3 values not finite, the last at step 710 [1]'
    );
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

  it('are none of a range that is none', () => expect(logTicks(1e16, 1e16)).toEqual([]));

  it('tell ticks apart', () => {
    expect(tickTexts([0, 0.5, 1])).toEqual(['0', '0.5', '1']);
    expect(tickTexts([0.99981, 0.99982])).toEqual(['0.99981', '0.99982']);
    expect(tickTexts([0, 500_000, 1e6, 1.5e6])).toEqual(['0', '5e5', '1e6', '1.5e6']);
    expect(tickTexts([5e-4, 1e-3, 2])).toEqual(['5e-4', '1e-3', '2']);
    expect(tickTexts([1234567, 1234568])).toEqual(['1.234567e6', '1.234568e6']);
  });
});

describe('a state', () => {
  it('has a name, also one that only a newer server knows', () => {
    expect(stateName('lost', english)).toBe('Lost');
    expect(stateName('queued' as State, english)).toBe('queued');
  });
});
