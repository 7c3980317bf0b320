/** Zooming into a chart by the wheel and the keys. */
import type uPlot from 'uplot';

/** The part of the horizontal axis that is shown. */
export interface IZoom {
  min: number;
  max: number;
}

/** A turn of the wheel makes what is shown at most so many times as long. */
const MOST = 2;
const PIXELS_OF_A_LINE = 16;

/** What is to be shown when `x` stays in its place, and `by` times as much is shown; null for everything. */
export function zoomed(plot: uPlot, x: number, by: number): IZoom | null {
  const { min = 0, max = 0 } = plot.scales.x;
  const xs = plot.data[0];
  const [first, last] = [xs[0], xs[xs.length - 1]];
  // Another chart may have led to where this one has no data.
  const zoom = {
    min: Math.max(Math.min(first, min), x - (x - min) * by),
    max: Math.min(Math.max(last, max), x + (max - x) * by)
  };
  return zoom.min <= first && zoom.max >= last ? null : zoom;
}

/** The same for the wheel, with Ctrl or ⌘; undefined for another turn, which scrolls the page. */
export function wheelZoom(plot: uPlot, event: WheelEvent): IZoom | null | undefined {
  if (!(event.ctrlKey || event.metaKey) || !event.deltaY || plot.data[0].length < 2) {
    return undefined;
  }
  event.preventDefault();
  const x = plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, 'x');
  const by = Math.exp((event.deltaY * (event.deltaMode ? PIXELS_OF_A_LINE : 1)) / 200);
  return zoomed(plot, x, Math.min(MOST, Math.max(1 / MOST, by)));
}
