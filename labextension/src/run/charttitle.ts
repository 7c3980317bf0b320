/** What stands over a chart: the ranks' last values as mean and range, and which ranks have gone bad, and when. */
import { ranges, value } from './format';
import type { ICurve } from './source';
import type { Trans } from './trans';

/** More kinds of "NaN on rank 3 from step 12" than that are counted. */
const MOST = 3;

/** Of the last values of the ranks; `mean`, `min` and `max` are of those that are numbers. */
export interface ILast {
  step: number;
  mean: number;
  min: number;
  max: number;
  ranks: number;
}

/** The ranks' last values together; null while there is no number. `drawn`: the ranks that are looked at. */
export function lastValues(curve: ICurve, drawn?: ReadonlySet<number>): ILast | null {
  const { band } = curve;
  if (band?.steps.length && !drawn?.size) {
    for (let end = band.steps.length - 1; end >= 0; end--) {
      const [mean, min, max] = [band.mean[end], band.min[end], band.max[end]];
      if (mean !== null && min !== null && max !== null) {
        return { step: band.steps[end], mean, min, max, ranks: Infinity };
      }
    }
    return null;
  }
  const own = curve.ranks.filter(({ rank }) => !drawn?.size || drawn.has(rank));
  const numbers: number[] = [];
  let step = -Infinity;
  for (const { steps, values } of own) {
    const last = values.at(-1);
    if (typeof last === 'number') {
      numbers.push(last);
    }
    step = Math.max(step, steps.at(-1) ?? -Infinity);
  }
  if (!numbers.length) {
    return null;
  }
  // Divided first: the sum of two huge values is no float.
  const mean = numbers.reduce((sum, number) => sum + number / numbers.length, 0);
  const [min, max] = [Math.min(...numbers), Math.max(...numbers)];
  return { step, mean: min === max ? min : mean, min, max, ranks: numbers.length };
}

/** `0.25`, where ranks differ `mean 0.25 (0.2 – 0.31)`. */
export function lastText(last: ILast, trans: Trans): string {
  return last.min === last.max
    ? value(last.mean)
    : trans('mean %1 (%2 – %3)', value(last.mean), value(last.min), value(last.max));
}

/** Which ranks have values that are no numbers, and since when: `NaN from step 30 [2]`; empty where none has. */
export function specialText(curve: ICurve, trans: Trans): string {
  const kinds = new Map<string, number[]>();
  const having = curve.ranks
    .flatMap(({ rank, special }) => (special?.length ? [{ rank, ...special[0] }] : []))
    .sort((a, b) => a.step - b.step);
  for (const { rank, step, value } of having) {
    const text = trans('%1 from step %2', value, step);
    kinds.set(text, [...(kinds.get(text) ?? []), rank]);
  }
  const texts = [...kinds].map(([text, ranks]) =>
    curve.ranks.length === 1 ? text : `${text} [${ranges(ranks.sort((a, b) => a - b))}]`
  );
  const left = texts.length - MOST;
  return [...texts.slice(0, MOST), ...(left > 0 ? [trans('%1 more', left)] : [])].join(', ');
}

/** The ranks whose last value of some metric is no number, with what it is: `loss is NaN from step 30`. */
export function badRanks(curves: readonly ICurve[], trans: Trans): Map<number, string> {
  const found = new Map<number, string>();
  for (const { name, ranks } of curves) {
    for (const { rank, values, special } of ranks) {
      const first = special?.[0];
      if (first && values.at(-1) === null && !found.has(rank)) {
        found.set(rank, trans('%1 is %2 from step %3', name, first.value, first.step));
      }
    }
  }
  return found;
}
