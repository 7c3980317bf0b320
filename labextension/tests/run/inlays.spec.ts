import { describe, expect, it } from 'vitest';
import { framed } from '../../src/run/bundles';
import { inlaysOf } from '../../src/run/inlays';
import type { IDisplay, IPlace } from '../../src/run/source';
import { RowHeights } from '../../src/run/rowheights';
import * as virtual from '../../src/run/rowwindow';

describe('stretched rows', () => {
  const all = [
    { first: 2, count: 1, height: 100 },
    { first: 5, count: 3, height: 60 },
    { first: 8, count: 1, height: 30 }
  ];
  const geometry = { rows: 12, rowHeight: 10, viewport: 50, stretches: new RowHeights(all) };

  it('stand one below the other, and those whose place is taken have no height', () => {
    const tops = Array.from({ length: 13 }, (_, row) => virtual.topOf(row, geometry));
    expect(tops).toEqual([0, 10, 20, 120, 130, 140, 200, 200, 200, 230, 240, 250, 260]);
    expect(virtual.fullHeight(geometry)).toBe(260);
  });

  it('are found at every offset', () => {
    for (let offset = 0; offset < 260; offset++) {
      const { row, within } = virtual.rowAt(offset, geometry);
      expect(virtual.topOf(row, geometry) + within).toBe(offset);
      expect(virtual.topOf(row + 1, geometry) - offset).toBeGreaterThan(row === 5 ? -1 : 0);
    }
    expect(virtual.rowAt(141, geometry)).toEqual({ row: 5, within: 1 });
    expect(virtual.window(100, geometry)).toEqual({ first: 2, end: 6 });
    expect(virtual.window(120, geometry, 1)).toEqual({ first: 2, end: 7 });
    expect(virtual.window(virtual.maxOffset(geometry), geometry).end).toBe(12);
    expect(geometry.stretches.of(7)?.first).toBe(5);
    expect(geometry.stretches.of(9)).toBeNull();
  });
});

describe('displays between lines', () => {
  const png = (hash: string) => ({ mime: 'image/png', hash, offset: 0, bytes: 9 });
  const text = { mime: 'text/plain', text: '<Figure>' };
  const place = (rank: number, line: number, lines: number, row: number, rows: number): IPlace => ({
    rank,
    line,
    lines,
    row,
    rows
  });
  const display = (places: IPlace[], ...hashes: string[][]): IDisplay => ({
    key: '3/0',
    line: 3,
    result: false,
    more_ranks: 0,
    places,
    exhibits: hashes.map(([hash, ...ranks]) => ({
      ranks: ranks.map(Number),
      time: 1,
      metadata: {},
      contents: [png(hash), { mime: 'text/html', text: 'x' }, text]
    }))
  });
  const shown = (displays: IDisplay[], of: number | null | string) =>
    inlaysOf(displays, of, framed).map(({ first, count, pieces }) => [
      first,
      count,
      pieces.map(({ ranks, exhibit }) => `${ranks}: ${exhibit.contents[0].hash}`).join(' ')
    ]);

  it('stand together where ranks show them one after the other, and else where each has shown its own', () => {
    const one = display(
      [place(0, 4, 1, 7, 1), place(1, 4, 1, 8, 1), place(2, 9, 1, 20, 1)],
      ['a', '0', '2'],
      ['b', '1']
    );
    expect(shown([one], null)).toEqual([
      [7, 2, '0: a 1: b'],
      [20, 1, '2: a']
    ]);
    expect(shown([one], 2)).toEqual([[9, 1, '2: a']]);
    expect(shown([one], 'launcher')).toEqual([]);
  });

  it('that are the same are one, and stand below a line that says something else', () => {
    const same = display([place(0, 4, 2, 7, 2), place(1, 4, 2, 7, 2)], ['a', '0', '1']);
    const below = display([place(0, 4, 0, 7, 0), place(1, 9, 0, 12, 0)], ['c', '0', '1']);
    expect(shown([below, same], null)).toEqual([
      [7, 2, '0: c 0,1: a'],
      [12, 0, '1: c']
    ]);
  });

  it('are none where they are better seen large', () => {
    const chart = display([place(0, 1, 1, 1, 1)], ['a', '0']);
    chart.exhibits[0].contents = [{ mime: 'application/vnd.plotly.v1+json', json: {} }, text];
    expect(shown([chart], null)).toEqual([]);
  });
});
