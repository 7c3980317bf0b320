/** Where a chart's axes begin and end, where their ticks are and what stands at them. */
import type { Axis } from './xaxis';
import { duration, value } from './format';

const MOST_TICKS = 6;
const WHOLE = Array.from({ length: 15 }, (_, i) => [1, 2, 5].map(n => n * 10 ** i)).flat();
const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30];
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440, 2880, 7200, 14400];

/** How far apart ticks may be: steps are whole numbers, and times whole minutes where they are long. */
export const INCREMENTS: Record<Axis, { incrs?: number[] }> = {
  step: { incrs: WHOLE },
  time: { incrs: [...SECONDS, ...MINUTES.map(n => 60 * n)] },
  epoch: {}
};

/** A tick with all of its digits. */
export function exact(tick: number): string {
  return value(tick, 12);
}

/** A time since the start, in seconds below a minute. */
export function timeText(tick: number): string {
  return tick < 60 ? `${exact(tick)} s` : duration(tick);
}

/** What the data take of a logarithmic axis, and a little more: not whole decades, in which little is seen. */
export function logRange(min: number | null, max: number | null): [number | null, number | null] {
  if (min === null || max === null) {
    return [null, null];
  }
  const more = max > min ? Math.max((max / min) ** 0.1, 1.0001) : 2;
  return [min / more, max * more];
}

/** Powers of ten; where they are few, parts of them; where the axis is short, as on a linear one. */
export function logTicks(min: number, max: number): number[] {
  const first = Math.floor(Math.log10(min));
  const last = Math.ceil(Math.log10(max));
  const every = Math.ceil((last - first) / MOST_TICKS) || 1;
  for (const parts of [[1], [1, 2, 5]]) {
    const ticks: number[] = [];
    for (let exponent = first; exponent <= last; exponent += every) {
      ticks.push(...parts.map(part => Number(`${part}e${exponent}`)));
    }
    const inside = ticks.filter(tick => tick >= min && tick <= max);
    if (inside.length > 2) {
      return inside;
    }
  }
  return linearTicks(min, max);
}

function linearTicks(min: number, max: number): number[] {
  const rough = (max - min) / 4;
  const exponent = Math.floor(Math.log10(rough));
  const part = [1, 2, 5, 10].find(n => n * 10 ** exponent >= rough) ?? 10;
  const step = part * 10 ** exponent;
  const first = Math.ceil(min / step);
  const count = Math.floor(max / step) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * step);
}

/** With as many digits as tell them apart, and all with an exponent where one needs it. */
export function tickTexts(ticks: readonly number[]): string[] {
  const short = ticks.every(tick => !value(tick).includes('e'));
  const plain = (tick: number) =>
    short || tick === 0 || Math.floor(Math.log10(Math.abs(tick))) === 0;
  for (let digits = 4; ; digits++) {
    const texts = ticks.map(tick => value(tick, digits, plain(tick)));
    if (digits === 12 || new Set(texts).size === texts.length) {
      return texts;
    }
  }
}
