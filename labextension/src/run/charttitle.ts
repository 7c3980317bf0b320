/** What stands over a chart: the ranks' last values as mean and range, and which ranks have gone bad, and when. */
import { placeName, type Axis } from './xaxis';
import { ranges, value } from './format';
import type { IChartData, ILine, Ys } from './series';
import type { IBadRank, ICurve, ILastValues } from './source';
import type { Trans } from './trans';

/** More kinds of "NaN on rank 3 from step 12" than that are counted. */
const MOST = 3;
/** Nobody tells more lines apart. */
const MOST_COMPARED = 12;

/** The ranks' values at the last step that all have reached; null while there is no number.
 *
 * `drawn`: the selected ranks, which are then those that `of` counts. A single rank has its own last value. */
export function lastValues(curve: ICurve, drawn?: ReadonlySet<number>): ILastValues | null {
  const own = curve.ranks.filter(({ rank }) => !drawn?.size || drawn.has(rank));
  const all = !drawn?.size || own.length >= (curve.last?.of ?? curve.ranks.length);
  if (curve.last !== undefined && (all || !own.length)) {
    return curve.last;
  }
  const ends = own.map(({ values, last }) =>
    own.length > 1 && last !== undefined ? last : values.at(-1)
  );
  const numbers = ends.filter(value => typeof value === 'number');
  if (!numbers.length) {
    return null;
  }
  // Divided first: the sum of two huge values is no float.
  const mean = numbers.reduce((sum, number) => sum + number / numbers.length, 0);
  const [min, max] = [Math.min(...numbers), Math.max(...numbers)];
  const step =
    own.length > 1 && curve.last
      ? curve.last.step
      : Math.max(...own.map(({ steps }) => steps.at(-1) ?? -Infinity));
  const counts = { ranks: numbers.length, of: own.length };
  return { step, mean: min === max ? min : mean, min, max, ...counts };
}

/** `0.25`, where ranks differ `mean 0.25 (0.2 – 0.31)`, where some are behind `…, 7 of 64 ranks`. */
export function lastText(last: ILastValues, trans: Trans): string {
  const text =
    last.min === last.max
      ? value(last.mean)
      : trans('mean %1 (%2 – %3)', value(last.mean), value(last.min), value(last.max));
  return last.ranks < last.of ? trans('%1, %2 of %3 ranks', text, last.ranks, last.of) : text;
}

/** What a chart is called for who does not see it: what it is drawn over, and its last value there. */
export function overText(name: string, axis: Axis, last: ILastValues | null, trans: Trans): string {
  const over = {
    step: trans('%1 over steps', name),
    time: trans('%1 over time', name),
    epoch: trans('%1 over epochs', name)
  }[axis];
  if (!last) {
    return trans('%1; no values yet', over);
  }
  const place = placeName(axis, last.step, trans);
  const where = axis === 'time' ? place : trans('at %1', place);
  return trans('%1; %2 it is %3', over, where, lastText(last, trans));
}

/** Which ranks have values that are no numbers: `NaN from step 30 [2]` while they have, later how many and where.
 *
 * Empty where none has. */
export function specialText(curve: ICurve, trans: Trans): string {
  const kinds = new Map<string, number[]>();
  const having = curve.ranks
    .flatMap(({ rank, not_finite }) => (not_finite ? [{ rank, ...not_finite }] : []))
    .sort((a, b) => (a.since ?? a.last.step) - (b.since ?? b.last.step));
  for (const { rank, count, last, since } of having) {
    const text =
      since !== null
        ? trans('%1 from step %2', last.value, since)
        : count === 1
          ? trans('%1 at step %2', last.value, last.step)
          : trans('%1 values not finite, the last at step %2', count, last.step);
    kinds.set(text, [...(kinds.get(text) ?? []), rank]);
  }
  const texts = [...kinds].map(([text, ranks]) =>
    (curve.last?.of ?? curve.ranks.length) === 1
      ? text
      : `${text} [${ranges(ranks.sort((a, b) => a - b))}]`
  );
  const left = texts.length - MOST;
  return [...texts.slice(0, MOST), ...(left > 0 ? [trans('%1 more', left)] : [])].join(', ');
}

/** The ranks whose last value of some metric is no number, with what it is: `loss is NaN from step 30`. */
export function badRanks(bad: readonly IBadRank[], trans: Trans): Map<number, string> {
  return new Map(
    bad.map(one => [one.rank, trans('%1 is %2 from step %3', one.name, one.value, one.since)])
  );
}

/** How many values a logarithmic axis has no place for, or that it has one for none. */
export function droppedText(
  { xs, lines, dropped }: IChartData,
  log: boolean,
  trans: Trans
): string {
  const empty = lines.every(({ ys }) => ys.every(y => y === null || y === undefined));
  if (log && xs.length && empty) {
    return trans('nothing above 0');
  }
  return dropped === 1
    ? trans('1 value of 0 or less is not drawn')
    : dropped
      ? trans('%1 values of 0 or less are not drawn', dropped)
      : '';
}

/** Which lines lie on top of each other: `rank 0 = rank 1`; empty where none do. */
export function equalText(
  { lines }: IChartData,
  name: (line: number) => string,
  trans: Trans
): string {
  const drawn = lines.filter(line => !line.raw && typeof line.rank === 'number');
  if (drawn.length < 2 || drawn.length > MOST_COMPARED) {
    return '';
  }
  const groups: ILine[][] = [];
  for (const line of drawn.filter(({ ys }) => ys.some(y => typeof y === 'number'))) {
    const group = groups.find(([first]) => same(first.ys, line.ys));
    if (group) {
      group.push(line);
    } else {
      groups.push([line]);
    }
  }
  if (groups.length === 1 && groups[0].length === drawn.length) {
    return trans('all lines are equal');
  }
  return groups
    .filter(group => group.length > 1)
    .map(group => group.map(line => name(Number(line.rank))).join(' = '))
    .join(', ');
}

function same(a: Ys, b: Ys): boolean {
  return a.length === b.length && a.every((y, i) => y === b[i]);
}
