/** What a tuning run's trials look like: objective over time, parallel coordinates, importance. All SVG. */
import type { IParameter, ITrialInfo, ITuning } from '../../answers/runs';
import type { Trans } from '../trans';
import { svg } from '../dom';
import { value as shownNumber } from '../format';
import { ownValue } from '../ownvalue';
import { place, shownAll, ticks } from './scale';

export const WIDTH = 440;
export const HEIGHT = 170;
export const LEFT = 54;
export const RIGHT = 14;
export const TOP = 12;
export const BOTTOM = 26;
/** More lines than that are a blot: the newest are drawn, and the best one. */
const MOST_LINES = 400;

export function drawing(label: string, height: number, ...children: (Node | string)[]): SVGElement {
  return svg(
    'svg',
    { viewBox: `0 0 ${WIDTH} ${height}`, class: 'jpd-drawing', role: 'img', 'aria-label': label },
    ...children
  );
}

export function text(x: number, y: number, what: string, anchor: string, most = 18): SVGElement {
  const short = what.length > most ? `${what.slice(0, most - 1)}…` : what;
  return svg('text', { x, y, 'text-anchor': anchor }, short);
}

export function titled(node: SVGElement, title: string): SVGElement {
  node.prepend(svg('title', {}, title));
  return node;
}

/** `Trial 4: 0.93 (lr=0.01)`. */
export function told(trial: ITrialInfo, trans: Trans): string {
  const parameters = shownAll(trial.parameters);
  return `${trans('Trial %1', trial.number)}: ${shownNumber(trial.value)} (${parameters})`;
}

function judged(tuning: ITuning): (ITrialInfo & { value: number })[] {
  return tuning.trials.filter(
    (trial): trial is ITrialInfo & { value: number } => trial.value !== null
  );
}

function scaled(low: number, high: number, value: number): number {
  return high > low ? (value - low) / (high - low) : 0.5;
}

/** Each trial's value when it ended, and the best one until then as a line. Null while there is none. */
export function overTime(tuning: ITuning, trans: Trans): SVGElement | null {
  const trials = judged(tuning).sort((a, b) => (a.ended ?? 0) - (b.ended ?? 0));
  if (!trials.length) {
    return null;
  }
  const values = trials.map(trial => trial.value);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const x = (index: number) => LEFT + scaled(0, trials.length - 1, index) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => HEIGHT - BOTTOM - scaled(low, high, value) * (HEIGHT - TOP - BOTTOM);
  const better = (a: number, b: number) => (tuning.goal === 'max' ? a > b : a < b);
  let best = values[0];
  let path = `M${x(0)} ${y(best)}`;
  values.forEach((value, index) => {
    path += `H${x(index)}`;
    if (better(value, best)) {
      best = value;
      path += `V${y(best)}`;
    }
  });
  return drawing(
    trans('%1 over time', tuning.metric),
    HEIGHT,
    text(LEFT - 6, TOP + 4, shownNumber(high), 'end'),
    high > low ? text(LEFT - 6, HEIGHT - BOTTOM + 4, shownNumber(low), 'end') : '',
    text(LEFT, HEIGHT - 6, trans('trials in the order of their ends'), 'start', 60),
    svg('path', { d: path, class: 'jpd-best-line' }),
    ...trials.map((trial, index) =>
      titled(
        svg('circle', {
          cx: x(index),
          cy: y(trial.value),
          r: trial.number === tuning.best ? 4.5 : 3,
          class: trial.number === tuning.best ? 'jpd-dot jpd-dot-best' : 'jpd-dot'
        }),
        told(trial, trans)
      )
    )
  );
}

/** A line for each trial, from axis to axis: the parameters, and the objective at the right. */
export function parallel(tuning: ITuning, trans: Trans): SVGElement | null {
  const trials = judged(tuning);
  if (!trials.length) {
    return null;
  }
  const values = trials.map(trial => trial.value);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const objective: IParameter = {
    name: tuning.metric,
    kind: 'real',
    low,
    high,
    log: false,
    values: []
  };
  const axes = [...tuning.parameters, objective];
  const x = (axis: number) => LEFT + (axis / (axes.length - 1)) * (WIDTH - LEFT - LEFT);
  const y = (part: number) => HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
  const worth = (value: number) => {
    const part = scaled(low, high, value);
    return tuning.goal === 'max' ? part : 1 - part;
  };
  // The best one is drawn last, above all others.
  const drawn = trials
    .slice(-MOST_LINES)
    .filter(trial => trial.number !== tuning.best)
    .sort((a, b) => worth(a.value) - worth(b.value));
  const best = trials.find(trial => trial.number === tuning.best);
  const lines = [...drawn, ...(best ? [best] : [])].map(trial => {
    const places = axes.map((axis, index) =>
      index < tuning.parameters.length
        ? place(axis, ownValue(trial.parameters, axis.name))
        : scaled(low, high, trial.value)
    );
    const points = places.flatMap((part, axis) =>
      part === null ? [] : [`${x(axis).toFixed(1)},${y(part).toFixed(1)}`]
    );
    const node = svg('polyline', {
      points: points.join(' '),
      class: trial === best ? 'jpd-way jpd-way-best' : 'jpd-way',
      style: `opacity:${trial === best ? 1 : (0.15 + 0.6 * worth(trial.value)).toFixed(2)}`
    });
    return titled(node, told(trial, trans));
  });
  return drawing(
    trans('Parallel coordinates'),
    HEIGHT,
    ...axes.flatMap((axis, index) => [
      svg('path', { d: `M${x(index)} ${TOP}V${HEIGHT - BOTTOM}`, class: 'jpd-axis' }),
      text(x(index), HEIGHT - 6, axis.name, 'middle')
    ]),
    ...lines,
    ...axes.flatMap((axis, index) =>
      ticks(axis).map(([part, what]) =>
        text(x(index) + (index === 0 ? -6 : 6), y(part) + 4, what, index === 0 ? 'end' : 'start')
      )
    )
  );
}

/** A bar for each parameter; null while nobody can tell. */
export function importance(tuning: ITuning, trans: Trans): SVGElement | null {
  const found = Object.entries(tuning.importance).sort((a, b) => b[1] - a[1]);
  if (!found.length) {
    return null;
  }
  const each = Math.min(28, (HEIGHT - TOP) / found.length);
  const room = WIDTH - 2 * LEFT - 60;
  return drawing(
    trans('Importance'),
    2 * TOP + each * found.length,
    ...found.flatMap(([name, part], index) => [
      text(LEFT + 52, TOP + each * (index + 0.65), name, 'end'),
      svg('rect', {
        x: LEFT + 58,
        y: TOP + each * (index + 0.2),
        width: Math.max(1, part * room),
        height: each * 0.6,
        class: 'jpd-weight'
      }),
      text(
        LEFT + 64 + part * room,
        TOP + each * (index + 0.65),
        `${Math.round(100 * part)} %`,
        'start'
      )
    ])
  );
}
