/** Where the rows of a list of any length stand in a scrolling box of bounded height. */

/** Browsers lose precision, or stop, at heights above some ten million pixels. */
export const MAX_HEIGHT = 8_000_000;

export interface IGeometry {
  rows: number;
  rowHeight: number;
  /** Height of the visible box. */
  viewport: number;
}

/** What the rows would need. */
export function fullHeight({ rows, rowHeight }: IGeometry): number {
  return rows * rowHeight;
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
  const { rows, rowHeight, viewport } = geometry;
  const first = Math.floor(offset / rowHeight) - overscan;
  const end = Math.ceil((offset + viewport) / rowHeight) + overscan;
  return { first: Math.min(rows, Math.max(0, first)), end: Math.min(rows, Math.max(0, end)) };
}

/** The offset that brings a row into sight: none if it is, else the one that puts it in the middle. */
export function reveal(row: number, offset: number, geometry: IGeometry): number {
  const top = row * geometry.rowHeight;
  if (top >= offset && top + geometry.rowHeight <= offset + geometry.viewport) {
    return offset;
  }
  return clamp(top - (geometry.viewport - geometry.rowHeight) / 2, geometry);
}
