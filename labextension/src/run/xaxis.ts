/** What curves are drawn over: steps, the time since the start, or epochs. */
import type { IContext } from './context';
import { el } from './dom';
import { duration, value } from './format';
import type { IBand, IRankCurve } from '../answers/metrics';
import type { ICurve, ICurves } from './source';
import type { Trans } from './trans';

export type Axis = 'step' | 'time' | 'epoch';

/** Where a point is on the axis, by its step and its time; null if that is not known. */
export type Place = (step: number, time: number | null | undefined) => number | null;

const EPOCH = /^(epoch|trainer\/epoch|train\/epoch)$/;

export function isEpoch(name: string): boolean {
  return EPOCH.test(name);
}

/** What curves can be drawn over. A snapshot has no times of ranks. */
export function axesOf({ curves, names }: ICurves): Axis[] {
  const timed = curves.every(({ band, ranks }) => {
    const of = band ?? ranks[0];
    return !of?.steps.length || of.times.length;
  });
  const axes: Axis[] = ['step', 'time', 'epoch'];
  return axes.filter(one => one === 'step' || (one === 'time' ? timed : names.some(isEpoch)));
}

/** The places on an axis; undefined for steps. `start`: in seconds since the epoch. */
export function placeOn(
  axis: Axis,
  start: number | null,
  curves: readonly ICurve[]
): Place | undefined {
  if (axis === 'time') {
    return (_, time) =>
      typeof time === 'number' && start !== null ? Math.max(0, time - start) : null;
  }
  return axis === 'epoch' ? epochs(curves.find(one => isEpoch(one.name))) : undefined;
}

/** The epoch at a step: between two that are known it lies as far as the step does. */
function epochs(curve: ICurve | undefined): Place {
  const { steps, values } = (curve && wholeLine(curve)) ?? { steps: [], values: [] };
  const known = steps.flatMap((step, at) => {
    const epoch = values[at];
    // While it is the same, the next one is under way.
    return epoch === null || (at > 0 && values[at - 1] === epoch) ? [] : [{ step, epoch }];
  });
  let at = 1;
  return step => {
    // From where the point before was: there may be thousands of points, and as many epochs.
    while (at < known.length - 1 && known[at].step < step) {
      at++;
    }
    while (at > 1 && known[at - 1].step >= step) {
      at--;
    }
    const [a, b] = [known[at - 1], known[at]];
    const passed = b ? ((b.epoch - a.epoch) * (step - a.step)) / (b.step - a.step || 1) : 0;
    return a ? Math.max(0, a.epoch + passed) : null;
  };
}

/** A run as one line: its only rank, or the mean of all ranks as far as all have come. */
export function wholeLine({ band, ranks, last }: ICurve): IRankCurve {
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

/** A curve whose steps are places on another axis. */
export function moved(curve: ICurve, place: Place): ICurve {
  const { band, ranks, attempts = [] } = curve;
  const of = band ?? ranks[0];
  /** The same at the place of its step, or of the next one that is known. */
  const placed = <T extends { step: number }>(one: T): T | undefined => {
    const at = of?.steps.findIndex(step => step >= one.step) ?? -1;
    const x = at < 0 ? null : place(of.steps[at], of.times[at]);
    return x === null ? undefined : { ...one, step: x };
  };
  return {
    ...curve,
    attempts: attempts.flatMap(one => placed(one) ?? []),
    last: curve.last && placed(curve.last),
    ranks: ranks.map(rank => movedLine(rank, place)),
    band: band && movedBand(band, place)
  };
}

export function movedLine(rank: IRankCurve, place: Place): IRankCurve {
  const { steps, values, times, special = [] } = rank;
  const { xs, take } = places(steps, times, place);
  const named = special.flatMap(({ step, value: text }) => {
    const x = place(step, times[steps.indexOf(step)]);
    return x === null ? [] : [{ step: x, value: text }];
  });
  return { ...rank, steps: xs, values: take(values), times: take(times), special: named };
}

function movedBand(band: IBand, place: Place): IBand {
  const { steps, mean, min, max, times, whole, ranks } = band;
  const { xs, kept, take } = places(steps, times, place);
  return {
    ...{ steps: xs, mean: take(mean), min: take(min), max: take(max), times: take(times) },
    whole: kept.filter(at => at < whole).length,
    ranks: kept.flatMap(at => (at < whole ? [] : ranks[at - whole]))
  };
}

/** The places of the points that have one, and what takes of a list what belongs to these points. */
function places(steps: number[], times: (number | null)[], place: Place) {
  const all = steps.map((step, at) => place(step, times[at]));
  const kept = all.flatMap((x, at) => (x === null ? [] : at));
  const take = <T>(list: T[]): T[] => kept.map(at => list[at]);
  return { xs: take(all) as number[], kept, take };
}

/** What a place is called. */
export function placeName(axis: Axis, x: number, trans: Trans): string {
  return axis === 'time'
    ? trans('after %1', duration(x))
    : axis === 'epoch'
      ? trans('epoch %1', value(x))
      : trans('step %1', x);
}

/** A list to choose the axis from. */
export class AxisChoice {
  readonly node: HTMLElement;
  private readonly _list: HTMLSelectElement;
  private _known: readonly Axis[] = [];

  constructor(
    { trans, signal }: IContext,
    private _axis: Axis,
    changed: (axis: Axis) => void
  ) {
    this._list = el(
      'select',
      { class: 'jpd-input', 'aria-label': trans('Horizontal axis') },
      el('option', { value: 'step' }, trans('steps')),
      el('option', { value: 'time' }, trans('time')),
      el('option', { value: 'epoch' }, trans('epochs'))
    );
    const choose = () => changed((this._axis = this._list.value as Axis));
    this._list.addEventListener('change', choose, { signal });
    this.node = el(
      'label',
      { class: 'jpd-smoothing' },
      el('span', {}, trans('x axis')),
      this._list
    );
    this.known = ['step'];
  }

  /** The axis that was chosen, or steps while it is not known. */
  get axis(): Axis {
    return this._known.includes(this._axis) ? this._axis : 'step';
  }

  /** What curves can be drawn over. */
  set known(known: readonly Axis[]) {
    this._known = known;
    [...this._list.options].forEach(one => (one.hidden = !known.includes(one.value as Axis)));
    this._list.value = this.axis;
  }
}
