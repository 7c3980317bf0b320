/** Where the rows of a list of any length stand in a scrolling box of bounded height. */

import type { RowHeights } from './rowheights';

/** Browsers lose precision, or stop, at heights above some ten million pixels. */
export const MAX_HEIGHT = 8_000_000;

export interface IGeometry {
  rows: number;
  rowHeight: number;
  /** Height of the visible box. */
  viewport: number;
  /** Rows that have another height. */
  stretches?: RowHeights;
}

/** Where a row begins; also one after the last. */
export function topOf(row: number, { rowHeight, stretches }: IGeometry): number {
  return stretches ? stretches.top(row, rowHeight) : row * rowHeight;
}

/** The row at an offset, and how far into it that is. */
export function rowAt(
  offset: number,
  { rowHeight, stretches }: IGeometry
): { row: number; within: number } {
  const row = Math.floor(offset / rowHeight);
  return stretches ? stretches.at(offset, rowHeight) : { row, within: offset - row * rowHeight };
}

/** What the rows would need. */
export function fullHeight(geometry: IGeometry): number {
  return topOf(geometry.rows, geometry);
}

/** The height that the scrolled content gets. */
export function contentHeight(geometry: IGeometry): number {
  return Math.min(fullHeight(geometry), Math.max(MAX_HEIGHT, geometry.viewport));
}

/** How far the rows can be scrolled, in row pixels. */
export function maxOffset(geometry: IGeometry): number {
  return Math.max(0, fullHeight(geometry) - geometry.viewport);
}

/** Row pixels for each pixel of the scroll bar; 1 while the list is short. */
export function scale(geometry: IGeometry): number {
  const scrollable = contentHeight(geometry) - geometry.viewport;
  return scrollable > 0 ? maxOffset(geometry) / scrollable : 1;
}

export function offsetOf(scrollTop: number, geometry: IGeometry): number {
  return clamp(scrollTop * scale(geometry), geometry);
}

export function scrollTopOf(offset: number, geometry: IGeometry): number {
  return clamp(offset, geometry) / scale(geometry);
}

export function clamp(offset: number, geometry: IGeometry): number {
  return Math.min(maxOffset(geometry), Math.max(0, offset));
}

/** The rows [first, end) to draw at an offset, with some more above and below. */
export function window(
  offset: number,
  geometry: IGeometry,
  overscan = 0
): { first: number; end: number } {
  const { rows, viewport } = geometry;
  const first = rowAt(offset, geometry).row - overscan;
  const { row, within } = rowAt(offset + viewport, geometry);
  const end = row + (within > 0 ? 1 : 0) + overscan;
  return { first: Math.min(rows, Math.max(0, first)), end: Math.min(rows, Math.max(0, end)) };
}

/** The offset that brings a row into sight: none if it is, else the one that puts it in the middle. */
export function reveal(row: number, offset: number, geometry: IGeometry): number {
  const top = topOf(row, geometry);
  if (top >= offset && top + geometry.rowHeight <= offset + geometry.viewport) {
    return offset;
  }
  return clamp(top - (geometry.viewport - geometry.rowHeight) / 2, geometry);
}
