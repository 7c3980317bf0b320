/** Where the rows of a list stand whose lines are wrapped, so that rows are of different heights.
 *
 * Only the rows in sight have a height that is known. So the scroll bar counts lines, and one point is held:
 * as far down in the box as the list is scrolled, there stands the line that is as far down in the list. At
 * the list's beginning that is its first line at the top, at its end its last line at the bottom. */
import * as virtual from './rowwindow';

/** The held point: a line, counted in lines with its fraction, and how far below the box's top it stands. */
export function held(offset: number, geometry: virtual.IGeometry): { line: number; below: number } {
  const most = virtual.maxOffset(geometry);
  const below = most > 0 ? (offset / most) * geometry.viewport : 0;
  return { line: (offset + below) / geometry.rowHeight, below };
}

/** The offset at which the middle of a line is the held point. */
export function offsetOf(line: number, geometry: virtual.IGeometry): number {
  const most = virtual.maxOffset(geometry);
  const factor = most > 0 ? 1 + geometry.viewport / most : 1;
  return virtual.clamp(((line + 0.5) * geometry.rowHeight) / factor, geometry);
}

/** The rows to draw: those around the held line that fill the box if none of them is wrapped. */
export function window(
  offset: number,
  geometry: virtual.IGeometry,
  lineHeight: number,
  overscan: number
): { first: number; end: number } {
  const { line, below } = held(offset, geometry);
  const first = Math.floor(line - below / lineHeight) - overscan;
  const end = Math.ceil(line + (geometry.viewport - below) / lineHeight) + overscan;
  return {
    first: Math.min(geometry.rows, Math.max(0, first)),
    end: Math.min(geometry.rows, Math.max(0, end))
  };
}
