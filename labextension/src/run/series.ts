/** From a metric's curves to what uPlot draws: one x for all, a y for each line. */
import type { Place } from './xaxis';
import { smooth } from './smooth';
import type { ICurve } from './source';

/** undefined: this line has no point here; null: its value was not a number, so the line breaks. */
export type Ys = (number | null | undefined)[];

export interface ILine {
  /** A rank, or a part of the band over all ranks. `some`: the mean of the ranks that are ahead. */
  rank: number | 'mean' | 'some' | 'min' | 'max';
  /** Drawn faintly behind the smoothed line. */
  raw: boolean;
  ys: Ys;
}

export interface IChartData {
  xs: number[];
  lines: ILine[];
  /** How many values a logarithmic axis has no place for. */
  dropped: number;
}

export interface IDrawn {
  smoothing: number;
  log: boolean;
  /** The ranks that get a line. */
  ranks: ReadonlySet<number>;
  band: boolean;
  /** Show the unsmoothed line as well. */
  raw: boolean;
  /** Where points are on the horizontal axis; without it at their steps. */
  place?: Place;
}

/** Whether there is no more than one point of each rank. */
export function isPoint({ band, ranks }: ICurve): boolean {
  const counts = [band, ...ranks].map(part => part?.steps.length ?? 0);
  return Math.max(...counts) === 1;
}

export function sameDrawn(a: IDrawn, b: IDrawn): boolean {
  const { smoothing, log, band, raw, place } = a;
  const same =
    smoothing === b.smoothing &&
    log === b.log &&
    band === b.band &&
    raw === b.raw &&
    place === b.place;
  return same && a.ranks.size === b.ranks.size && [...a.ranks].every(rank => b.ranks.has(rank));
}

interface IPart {
  rank: ILine['rank'];
  steps: number[];
  values: (number | null)[];
}

export function chartData(curve: ICurve, options: IDrawn): IChartData {
  const parts: IPart[] = [];
  const { band } = curve;
  if (options.band && band) {
    const { steps } = band;
    parts.push({ rank: 'min', steps, values: band.min }, { rank: 'max', steps, values: band.max });
  }
  for (const rank of curve.ranks) {
    if (options.ranks.has(rank.rank)) {
      parts.push(rank);
    }
  }
  if (options.band && band) {
    parts.push({ rank: 'mean', steps: band.steps, values: band.mean });
  }
  const { xs, ys } = align(parts);
  const lines: ILine[] = [];
  let dropped = 0;
  parts.forEach(({ rank }, i) => {
    const raw = options.log ? ys[i].map(positive) : ys[i];
    if (raw !== ys[i] && rank !== 'min' && rank !== 'max') {
      dropped += ys[i].filter((y, at) => y !== raw[at]).length;
    }
    const smoothed = options.smoothing > 0 && rank !== 'min' && rank !== 'max';
    if (smoothed && options.raw) {
      lines.push({ rank, raw: true, ys: raw });
    }
    lines.push({ rank, raw: false, ys: smoothed ? smooth(raw, options.smoothing) : raw });
  });
  if (options.band && band) {
    splitMean(lines, xs, band.steps[band.whole] ?? Infinity);
  }
  // The lines that matter are drawn last.
  lines.sort((a, b) => Number(b.raw) - Number(a.raw));
  return { xs, lines, dropped };
}

/** Move what only some ranks have reached into a line of its own. It begins where the mean of all ends. */
function splitMean(lines: ILine[], xs: number[], ahead: number): void {
  const whole = xs.filter(x => x < ahead).length;
  for (const line of lines.filter(one => one.rank === 'mean')) {
    const { ys } = line;
    line.ys = ys.slice(0, whole).concat(xs.slice(whole).map(() => undefined));
    if (!line.raw) {
      const join = line.ys.map(y => typeof y === 'number').lastIndexOf(true);
      const some = ys.map((y, i) =>
        i >= whole || (i === join && whole < xs.length) ? y : undefined
      );
      lines.push({ rank: 'some', raw: false, ys: some });
    }
  }
}

/** A logarithm has no place for the others. */
function positive(y: number | null | undefined): number | null | undefined {
  return y !== null && y !== undefined && y <= 0 ? null : y;
}

function align(parts: IPart[]): { xs: number[]; ys: Ys[] } {
  if (!parts.length) {
    return { xs: [], ys: [] };
  }
  const first = parts[0].steps;
  if (increasing(first) && parts.every(part => same(part.steps, first))) {
    // The usual case: all ranks log the same steps. Nothing is copied.
    return { xs: first, ys: parts.map(part => part.values) };
  }
  const xs = [...new Set(parts.flatMap(part => part.steps))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, i) => [x, i]));
  const ys = parts.map(({ steps, values }) => {
    const line: Ys = new Array<number | null | undefined>(xs.length).fill(undefined);
    // A step that was logged twice keeps its last value.
    steps.forEach((step, i) => {
      line[place.get(step) as number] = values[i];
    });
    return line;
  });
  return { xs, ys };
}

function same(a: number[], b: number[]): boolean {
  return a === b || (a.length === b.length && a.every((x, i) => x === b[i]));
}

function increasing(xs: number[]): boolean {
  return xs.every((x, i) => i === 0 || x > xs[i - 1]);
}
