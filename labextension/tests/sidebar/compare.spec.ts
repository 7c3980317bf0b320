import { describe, expect, it } from 'vitest';
import { merge } from '../../src/compare';
import type { ICurve, ICurves } from '../../src/run/source';

function curves(...all: ICurve[]): ICurves {
  return { names: all.map(one => one.name), curves: all };
}

function line(rank: number, values: (number | null)[], steps = values.map((_, i) => i)) {
  return { rank, steps, values, times: [] };
}

describe('merge', () => {
  it('makes a line of each run: the mean of its ranks, step by step', () => {
    const first = curves({
      name: 'loss',
      band: null,
      ranks: [line(0, [4, 2]), line(1, [2, null, 9])]
    });
    const second = curves({ name: 'loss', band: null, ranks: [line(0, [7], [5])] });
    expect(merge([first, second])).toEqual([
      {
        name: 'loss',
        band: null,
        ranks: [line(0, [3, 2, 9]), { ...line(1, [7], [5]) }]
      }
    ]);
  });

  it('takes the mean of the band, and puts first what more runs have', () => {
    const band = { steps: [0], mean: [5], min: [1], max: [9] };
    const first = curves(
      { name: 'own', band: null, ranks: [line(0, [1])] },
      { name: 'loss', band, ranks: [line(0, [1])] }
    );
    const second = curves({ name: 'loss', band: null, ranks: [line(0, [6])] });
    const merged = merge([first, second]);
    expect(merged.map(one => one.name)).toEqual(['loss', 'own']);
    expect(merged[0].ranks.map(rank => [rank.rank, rank.values])).toEqual([
      [0, [5]],
      [1, [6]]
    ]);
  });

  it('leaves out what is not shown, and keeps the colours of the others', () => {
    const one = curves({ name: 'loss', band: null, ranks: [line(0, [1])] });
    expect(merge([null, one])[0].ranks.map(rank => rank.rank)).toEqual([1]);
    expect(merge([null, null])).toEqual([]);
  });
});
