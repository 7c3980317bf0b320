/** What a chart says of the step under the pointer: the lines' values there. */
import type { Axis } from './xaxis';
import type { IContext } from './context';
import { el } from './dom';
import { value } from './format';
import type { IChartData, ILine } from './series';
import type { ICurve } from './source';

const RANKS = 10;

interface IRow {
  line: ILine;
  text: string;
  far: number;
}

/** A row each for the band and for the ranks, of many for those nearest to the pointer. */
export function tipRows(
  curve: ICurve,
  { xs, lines }: IChartData,
  idx: number,
  /** How far from the pointer a value is drawn. */
  far: (y: number) => number,
  context: IContext,
  colour: (line: ILine) => string
): HTMLElement[] {
  const { trans, lineName = (rank: number) => trans('rank %1', rank) } = context;
  const rows: IRow[] = [];
  for (const line of lines.filter(one => !one.raw)) {
    const y = valueAt(line, idx, context.axis?.() ?? 'step');
    if (typeof y === 'number') {
      rows.push({ line, text: value(y), far: far(y) });
    } else if (y === null) {
      const text = specialAt(curve, line.rank, xs[idx]);
      if (text) {
        rows.push({ line, text, far: 0 });
      }
    }
  }
  const ahead = curve.band?.ranks[curve.band.steps.indexOf(xs[idx]) - curve.band.whole];
  const few = trans('mean of %1 of %2 ranks', ahead ?? 0, curve.last?.of ?? 0);
  const names = { mean: trans('mean'), some: few, min: trans('min'), max: trans('max') };
  const shownMean = ahead === undefined ? 'mean' : 'some';
  const parts = (['max', shownMean, 'min'] as const).flatMap(part =>
    rows
      .filter(row => row.line.rank === part)
      .map(row => el('div', {}, el('span', {}, `${names[part]} `), row.text))
  );
  const ranks = rows.filter(row => typeof row.line.rank === 'number');
  const near = ranks.sort((a, b) => a.far - b.far).slice(0, RANKS);
  near.sort((a, b) => Number(a.line.rank) - Number(b.line.rank));
  const shown = near.map(({ line, text }) => {
    const swatch = el('i', { class: 'jpd-swatch' });
    swatch.style.background = colour(line);
    return el('div', {}, swatch, el('span', {}, `${lineName(Number(line.rank))} `), text);
  });
  const left = ranks.length - near.length;
  return [
    ...parts,
    ...shown,
    ...(left > 0 ? [el('div', { class: 'jpd-muted' }, trans('and %1 more ranks', left))] : [])
  ];
}

/** Put what is said beside the pointer at `x` of the chart's box. */
export function placeTip(tip: HTMLElement, box: HTMLElement, x: number): void {
  const right = x + 14 <= box.clientWidth - tip.offsetWidth;
  tip.style.left = `${Math.max(0, right ? x + 14 : x - 14 - tip.offsetWidth)}px`;
  tip.style.top = `${box.offsetTop + 6}px`;
}

/** Over time, ranks come to the same step at different places: a line then has the value of its point before. */
function valueAt({ rank, ys }: ILine, idx: number, axis: Axis): number | null | undefined {
  let at = idx;
  if (axis !== 'step' && typeof rank === 'number' && ys.slice(idx).some(isNumber)) {
    while (at > 0 && ys[at] === undefined) {
      at--;
    }
  }
  return ys[at];
}

function isNumber(y: number | null | undefined): boolean {
  return typeof y === 'number';
}

/** What a rank's value is called that is no number. */
function specialAt(curve: ICurve, rank: ILine['rank'], step: number): string | undefined {
  const known = curve.ranks.find(one => one.rank === rank)?.special;
  return known?.find(one => one.step === step)?.value;
}
