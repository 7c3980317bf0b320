/** How the charts of a notebook's runs are shown. The next run of the notebook begins as the last one was left. */
import type { Axis } from './xaxis';
import { remember, remembered } from './browserstorage';
import { ownValue } from './ownvalue';
import type { Range } from './valuerange';

const KEY = 'jupyter-dist:charts';
const MOST_NOTEBOOKS = 50;

export interface IChartSettings {
  axis: Axis;
  smoothing: number;
  log: boolean;
  /** Names of metrics. */
  pinned: string[];
  /** By the names of metrics. */
  ranges: Record<string, Range>;
}

/** `notebook`: of the run; runs that are of none share their settings. */
export function chartSettings(notebook: string | null): IChartSettings {
  const kept = (ownValue(remembered(KEY), notebook ?? '') ?? {}) as Partial<IChartSettings>;
  const { axis, smoothing, pinned, ranges } = kept;
  return {
    axis: axis === 'time' || axis === 'epoch' ? axis : 'step',
    smoothing: typeof smoothing === 'number' ? Math.min(0.99, Math.max(0, smoothing)) : 0,
    log: kept.log === true,
    pinned: Array.isArray(pinned) ? pinned.map(String) : [],
    ranges: Object.fromEntries(
      Object.entries(ranges ?? {}).flatMap(([name, range]) =>
        Array.isArray(range) ? [[name, [number(range[0]), number(range[1])]]] : []
      )
    )
  };
}

export function keepChartSettings(notebook: string | null, settings: IChartSettings): void {
  const key = notebook ?? '';
  const others = Object.entries(remembered(KEY)).filter(([name]) => name !== key);
  remember(KEY, Object.fromEntries([...others.slice(1 - MOST_NOTEBOOKS), [key, settings]]));
}

function number(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}
