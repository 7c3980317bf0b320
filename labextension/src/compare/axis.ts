/** What curves of several runs are drawn over: steps, the time since each run's start, or epochs. */
import type { ICurve, ICurves, IRankCurve } from '../run/source';

export type Axis = 'step' | 'time' | 'epoch';

const EPOCH = /^(epoch|trainer\/epoch|train\/epoch)$/;

/** The name of the metric that tells the epoch, where a run has one. */
export function epochMetric(curves: ICurves | null): ICurve | undefined {
  return curves?.curves.find(curve => EPOCH.test(curve.name));
}

/** A run's curves over another axis. `start`: when the run began, in seconds since the epoch. */
export function over(curves: ICurves | null, axis: Axis, start: number | null): ICurves | null {
  if (!curves || axis === 'step') {
    return curves;
  }
  const epochs = axis === 'epoch' ? epochOf(epochMetric(curves)) : null;
  const move = (curve: ICurve): ICurve => ({
    ...curve,
    band: null,
    ranks: [moved(runLine(curve), axis, start, epochs)]
  });
  return { ...curves, curves: curves.curves.filter(one => !EPOCH.test(one.name)).map(move) };
}

/** A run as one line: its only rank, or the mean of all ranks as far as all have come. */
export function runLine({ band, ranks, last }: ICurve): IRankCurve {
  if (!band) {
    return ranks[0] ?? { rank: 0, steps: [], values: [], times: [] };
  }
  const [steps, values, times] = [band.steps, band.mean, band.times].map(part =>
    part.slice(0, band.whole)
  ) as [number[], (number | null)[], (number | null)[]];
  if (last && steps.at(-1) === last.step) {
    values[values.length - 1] = last.mean; // as lists show it, not rounded
  }
  return { rank: 0, steps, values, times };
}

function moved(
  rank: IRankCurve,
  axis: Axis,
  start: number | null,
  epochs: ((step: number) => number | null) | null
): IRankCurve {
  const xs = rank.steps.map((step, at) =>
    axis === 'time' ? minus(rank.times[at], start) : (epochs?.(step) ?? null)
  );
  const kept = xs.flatMap((x, at) => (x === null ? [] : at));
  return {
    ...rank,
    steps: kept.map(at => xs[at] as number),
    values: kept.map(at => rank.values[at]),
    times: kept.map(at => rank.times[at]),
    special: []
  };
}

function minus(time: number | null | undefined, start: number | null): number | null {
  // Tenths of a second: points of several runs come to the same place.
  return typeof time === 'number' && start !== null
    ? Math.max(0, Math.round((time - start) * 10) / 10)
    : null;
}

/** The epoch at a step: between two that are known it lies as far as the step does. */
function epochOf(curve: ICurve | undefined): ((step: number) => number | null) | null {
  const rank = curve && runLine(curve);
  if (!rank?.steps.length) {
    return null;
  }
  const known = rank.steps.flatMap((step, at) => {
    const epoch = rank.values[at];
    return epoch === null ? [] : [{ step, epoch }];
  });
  return step => {
    const next = known.findIndex(one => one.step >= step);
    if (next <= 0) {
      return known[next < 0 ? known.length - 1 : 0]?.epoch ?? null;
    }
    const [a, b] = [known[next - 1], known[next]];
    return a.epoch + ((b.epoch - a.epoch) * (step - a.step)) / (b.step - a.step || 1);
  };
}
