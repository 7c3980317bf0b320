import { describe, expect, it, vi } from 'vitest';
import { CompareView, merge } from '../../src/compare';
import { over } from '../../src/compare/axis';
import { lastValues } from '../../src/run/charttitle';
import type { ICurve, ICurves } from '../../src/run/source';
import { FakeSource, runInfo } from '../run/fakesource';

function curves(...all: ICurve[]): ICurves {
  return { names: all.map(one => one.name), curves: all };
}

function line(rank: number, values: (number | null)[], steps = values.map((_, i) => i)) {
  return { rank, steps, values, times: [] };
}

describe('merge', () => {
  it('makes a line of each run: the mean of its ranks as far as all have come', () => {
    const band = {
      ...{ steps: [0, 1, 2], mean: [3, 2.0000001, 9], min: [2, 2, 9], max: [4, 2, 9] },
      ...{ times: [10, 11, 12], whole: 2, ranks: [1] }
    };
    const last = { step: 1, mean: 2.00000011, min: 2, max: 2, ranks: 2, of: 2 };
    const first = curves(
      { name: 'own', band: null, ranks: [line(0, [1])] },
      { name: 'loss', band, last, ranks: [line(0, [4, 2]), line(1, [2, 2, 9])] }
    );
    const second = curves({ name: 'loss', band: null, ranks: [line(0, [7], [5])] });
    const merged = merge([first, second]);
    // What more runs have comes first.
    expect(merged.map(one => one.name)).toEqual(['loss', 'own']);
    // The last value is the one of the table, not rounded for a drawing.
    const mean = { ...line(0, [3, 2.00000011]), times: [10, 11] };
    expect(merged[0].ranks).toEqual([mean, { ...line(1, [7], [5]) }]);
    expect(lastValues(merged[0], new Set([0]))?.mean).toBe(last.mean);
    // Over time: the mean of each step, at the mean of the ranks' times.
    expect(merge([over(first, 'time', 8)])[0].ranks).toMatchObject([
      { steps: [2, 3], values: [3, 2.00000011] }
    ]);
  });

  it('leaves out what is not shown, and keeps the colours of the others', () => {
    const one = curves({ name: 'loss', band: null, ranks: [line(0, [1])] });
    expect(merge([null, one])[0].ranks.map(rank => rank.rank)).toEqual([1]);
    expect(merge([null, null])).toEqual([]);
  });
});

describe('CompareView', () => {
  it('says of a chart what it is drawn over, and where its last values are', async () => {
    const sources = [1, 2].map(at => {
      const source = new FakeSource(runInfo(1, 'succeeded', { started: 100, ended: 200 }));
      const times = [110, 120, 130];
      source.curveList = [
        { name: 'loss', band: null, ranks: [{ ...line(0, [3, 2, at], [0, 10, 20]), times }] },
        { name: 'epoch', band: null, ranks: [{ ...line(0, [0, 1, 2], [0, 10, 20]), times }] }
      ];
      return source;
    });
    const view = new CompareView({ sources });
    const said = () =>
      [...view.node.querySelectorAll('.jpd-chart-box')].map(box => box.getAttribute('aria-label'));
    await vi.waitFor(() => expect(said().length).toBe(2));
    expect(said()[0]).toBe('loss over steps; at step 20 it is mean 1.5 (1 – 2)');
    const axis = view.node.querySelector<HTMLSelectElement>('[aria-label="Horizontal axis"]')!;
    const over = (value: string) => {
      axis.value = value;
      axis.dispatchEvent(new Event('change'));
      return said()[0];
    };
    expect(over('time')).toBe('loss over time; after 30 s it is mean 1.5 (1 – 2)');
    expect(over('epoch')).toBe('loss over epochs; at epoch 2 it is mean 1.5 (1 – 2)');
    view.dispose();
  });
});
