/** Curves of a run among others: over steps, over the time since the run's start, or over epochs. */
import { isEpoch, movedLine, placeOn, wholeLine, type Axis } from '../run/xaxis';
import type { ICurves } from '../run/source';

/** A run's curves over another axis, each as one line. `start`: when the run began, in seconds since the epoch. */
export function over(curves: ICurves | null, axis: Axis, start: number | null): ICurves | null {
  const place = curves && placeOn(axis, start, curves.curves);
  if (!place) {
    return curves;
  }
  // Tenths of a second: points of several runs come to the same place.
  const near = axis === 'time' ? 10 : 1e6;
  const rounded: typeof place = (step, time) => {
    const x = place(step, time);
    return x === null ? null : Math.round(x * near) / near;
  };
  return {
    ...curves,
    curves: curves.curves
      .filter(one => !isEpoch(one.name))
      .map(one => ({ ...one, band: null, ranks: [movedLine(wholeLine(one), rounded)] }))
  };
}
