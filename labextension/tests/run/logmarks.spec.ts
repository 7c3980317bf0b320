import { describe, expect, it } from 'vitest';
import { parseLine } from '../../src/run/ansi';
import { timeOf, withMarks } from '../../src/run/logmarks';
import { rowNode } from '../../src/run/logrows';
import { english } from '../../src/run/trans';
import * as virtual from '../../src/run/rowwindow';
import * as wrapped from '../../src/run/wrappedrows';

const marks = (text: string) => withMarks(parseLine(text).pieces);

describe('a line', () => {
  it('has its level marked, where a logger writes it', () => {
    const levelled = (text: string) => marks(text).find(piece => piece.level)?.level;
    expect(levelled('WARNING:root:slow')).toBe('warning');
    expect(levelled('2026-11-22 10:00:00,123 [ERROR] out of memory')).toBe('error');
    expect(levelled('node0:12:34 [0] NCCL WARN Cuda failure')).toBe('warning');
    expect(levelled('DEBUG - 3')).toBe('debug');
    expect(levelled('MY_ERROR=3 or ERRORS, an error, NO-ERROR')).toBeUndefined();
    expect(levelled(`${'x'.repeat(80)} ERROR`)).toBeUndefined();
    // It has a colour of its own.
    expect(levelled('\x1b[31mERROR\x1b[0m again ERROR')).toBeUndefined();
    expect(marks('WARNING: an ERROR').map(piece => [piece.text, piece.level])).toEqual([
      ['WARNING', 'warning'],
      [': an ERROR', undefined]
    ]);
  });

  it('has addresses as links that lead where they say', () => {
    const links = (text: string) => marks(text).flatMap(piece => piece.href ?? []);
    expect(links('see https://a.org/b?c=1#d, (http://e.org/f).')).toEqual([
      'https://a.org/b?c=1#d',
      'http://e.org/f'
    ]);
    expect(links('javascript://x http:// file:///etc/passwd')).toEqual([]);
    const text = 'ERROR https://a.org/x y';
    expect(
      marks(text)
        .map(piece => piece.text)
        .join('')
    ).toBe(text);
    const row = rowNode(
      { n: 0, rank: 0, time: 0, text },
      { ranks: false, match: /a\.org/g, trans: english }
    );
    const [link] = row.querySelectorAll('a');
    expect([link.href, link.rel]).toEqual(['https://a.org/x', 'noopener noreferrer']);
    expect(row.querySelector('mark')?.textContent).toBe('a.org');
    expect(row.textContent).toBe(`1${text}`);
  });

  it('says when it was printed, if that is asked for', () => {
    const seconds = new Date(2026, 10, 22, 9, 5, 7, 42).getTime() / 1000;
    expect(timeOf(seconds).text).toBe('09:05:07.042');
    const row = rowNode(
      { n: 0, rank: 0, time: seconds, text: 'x' },
      { ranks: false, times: true, match: null, trans: english }
    );
    expect(row.querySelector('time')?.textContent).toBe('09:05:07.042');
  });
});

describe('wrapped lines', () => {
  const geometry = { rows: 1000, rowHeight: 18, viewport: 180 };

  it('begin with the first at the top and end with the last at the bottom', () => {
    expect(wrapped.held(0, geometry)).toEqual({ line: 0, below: 0 });
    const end = wrapped.held(virtual.maxOffset(geometry), geometry);
    expect(end).toEqual({ line: 1000, below: 180 });
  });

  it('are drawn where a line is that was looked for', () => {
    for (const line of [0, 3, 500, 996, 999]) {
      const offset = wrapped.offsetOf(line, geometry);
      expect(Math.abs(wrapped.held(offset, geometry).line - line - 0.5)).toBeLessThan(1);
      const { first, end } = wrapped.window(offset, geometry, 18, 2);
      expect(first <= line && line < end).toBe(true);
      // Enough of them to fill the box, if none is wrapped.
      expect(end - first).toBeGreaterThanOrEqual(11);
    }
    const few = { rows: 3, rowHeight: 18, viewport: 180 };
    expect(wrapped.window(0, few, 18, 2)).toEqual({ first: 0, end: 3 });
  });
});
