/** A scrolling list of a log's lines, of which only those in sight exist. */
import type { IContext } from './context';
import { el, setAttribute } from './dom';
import { count } from './format';
import { Inlays, type IInlay } from './inlays';
import type { LogPages } from './logpages';
import type { ILogModes } from './logmodes';
import { lineAt, rowOf } from './logrows';
import { RowHeights } from './rowheights';
import * as virtual from './rowwindow';
import * as wrapped from './wrappedrows';

const OVERSCAN = 12;
const DEFAULT_ROW_HEIGHT = 18;
/** Rows may be so much higher or lower than was thought before the scroll bar is made to fit. */
const OFF = 0.15;

export class LogList {
  readonly node: HTMLElement;
  /** Stay at the end as the log grows. */
  following = true;
  private readonly _spacer = el('div', { class: 'jpd-spacer' });
  private readonly _rows = el('div', { class: 'jpd-rows' });
  private readonly _drawn = new Map<number, { key: string; node: HTMLElement }>();
  private _offset = 0;
  private _expected = 0;
  /** The height of the content as it was last drawn. */
  private _height = 0;
  private _rowHeight = 0;
  /** How high rows are in the mean, by the height of a line. */
  private _lines = 1;
  private _match: RegExp | null = null;
  private _current = -1;
  private _selection: { anchor: number; focus: number } | null = null;
  private _dragging = false;
  private _frame = 0;
  private readonly _inlays: Inlays;

  constructor(
    private readonly _context: IContext,
    private readonly _pages: LogPages,
    private readonly _ranks: boolean,
    label: string,
    private readonly _modes: ILogModes,
    private readonly _moved: () => void,
    enlarge: (display: string, rank: number) => void
  ) {
    const { signal } = _context;
    this._inlays = new Inlays(_context, _ranks, enlarge, change => this._keepPlace(change));
    this._spacer.appendChild(this._rows);
    // Not aria-live: a flood of lines would be read out; news are announced by the view, in numbers.
    this.node = el(
      'div',
      { class: 'jpd-log', role: 'log', 'aria-live': 'off', 'aria-label': label, tabindex: 0 },
      this._spacer
    );
    this.node.addEventListener('scroll', () => this._onScroll(), { signal, passive: true });
    this.node.addEventListener('wheel', event => this._onWheel(event), { signal, passive: false });
    this.node.addEventListener('keydown', event => this._onKey(event), { signal });
    this.node.addEventListener('mousedown', event => this._onMouseDown(event), { signal });
    this.node.addEventListener('mouseover', event => this._onMouseOver(event), { signal });
    const resize = new ResizeObserver(() => this.draw());
    resize.observe(this.node);
    signal.addEventListener('abort', () => {
      resize.disconnect();
      this._inlays.dispose();
      cancelAnimationFrame(this._frame);
    });
  }

  /** Draw in the next frame. */
  draw(): void {
    if (!this._frame && !this._context.signal.aborted) {
      this._frame = requestAnimationFrame(() => {
        this._frame = 0;
        this._draw();
      });
    }
  }

  /** Draw anew after the modes have changed. */
  showModes(): void {
    this._drawn.clear();
    this._rows.replaceChildren();
    const top = this._offset / this._geometry().rowHeight;
    this._lines = 1;
    this._offset = top * this._geometry().rowHeight;
    this.draw();
  }

  get selection(): { first: number; end: number } | null {
    if (!this._selection) {
      return null;
    }
    const { anchor, focus } = this._selection;
    return { first: Math.min(anchor, focus), end: Math.max(anchor, focus) + 1 };
  }

  /** What ranks show stands between the lines. */
  showInlays(inlays: IInlay[]): void {
    if (inlays.length || !this._inlays.none) {
      this._inlays.show(inlays);
      this._moved();
    }
  }

  get hasInlays(): boolean {
    return !this._inlays.none;
  }

  /** Mark what a search finds; `current` is the line it stands at. */
  mark(match: RegExp | null, current: number): void {
    // What is searched for may stand in the text of something that is shown in its place.
    this._keepPlace(() => (this._match = match));
    this._current = current;
    this._drawn.clear();
    this.draw();
  }

  /** Some rows become higher or lower: what is at the top of the box stays there. */
  private _keepPlace(change: () => void): void {
    const { row, within } = virtual.rowAt(this._offset, this._geometry());
    change();
    if (!this._modes.wrap) {
      const geometry = this._geometry();
      this._offset = virtual.clamp(virtual.topOf(row, geometry) + within, geometry);
    }
    this.draw();
  }

  /** Scroll until the line is in sight. */
  reveal(line: number): void {
    this.following = false;
    const geometry = this._geometry();
    const to = this._modes.wrap
      ? wrapped.offsetOf(line, geometry)
      : virtual.reveal(line, this._offset, geometry);
    this._scrollTo(to);
    this._moved();
  }

  toEnd(): void {
    this.following = true;
    this.draw();
    this._moved();
  }

  /** Line numbers that are drawn, for tests and for those who measure. */
  get visible(): number[] {
    return [...this._drawn.keys()];
  }

  private _geometry(): virtual.IGeometry {
    const rowHeight = (this._rowHeight || DEFAULT_ROW_HEIGHT) * this._lines;
    return {
      rows: this._pages.rows,
      rowHeight,
      viewport: this.node.clientHeight,
      // Wrapped lines are of any height, and what stands between them is.
      stretches: this._inlays.none || this._modes.wrap ? undefined : this._stretches(rowHeight)
    };
  }

  private _stretches(rowHeight: number): RowHeights {
    const { rows } = this._pages;
    return new RowHeights(this._inlays.stretches(rows, rowHeight, this._match !== null));
  }

  private _draw(): void {
    const viewport = this.node.clientHeight;
    if (!viewport) {
      return;
    }
    this._rowHeight ||=
      Number.parseFloat(getComputedStyle(this._rows).lineHeight) || DEFAULT_ROW_HEIGHT;
    const geometry = this._geometry();
    this._height = virtual.contentHeight(geometry);
    this._spacer.style.height = `${this._height}px`;
    if (this.following) {
      this._offset = virtual.maxOffset(geometry);
    }
    this._offset = virtual.clamp(this._offset, geometry);
    this._expected = virtual.scrollTopOf(this._offset, geometry);
    if (Math.abs(this.node.scrollTop - this._expected) >= 1) {
      this.node.scrollTop = this._expected;
    }
    const { first, end } = this._modes.wrap
      ? wrapped.window(this._offset, geometry, this._rowHeight, OVERSCAN)
      : virtual.window(this._offset, geometry, OVERSCAN);
    this._pages.ensure(first, end);
    this.node.classList.toggle('jpd-log-wrap', this._modes.wrap);
    this.node.style.setProperty('--jpd-log-width', `${this.node.clientWidth}px`);
    const stretches = this._inlays.none ? null : this._stretches(this._rowHeight);
    this._place(first, end, stretches);
    const scrollTop = virtual.scrollTopOf(this._offset, geometry);
    const top = this._modes.wrap
      ? this._hold(geometry, stretches)
      : virtual.topOf(stretches?.of(first)?.first ?? first, geometry) - this._offset;
    this._rows.style.top = `${scrollTop + top}px`;
  }

  /** Where the rows begin, so that the held point is where it belongs. */
  private _hold(geometry: virtual.IGeometry, stretches: RowHeights | null): number {
    const { line, below } = wrapped.held(this._offset, geometry);
    const last = Math.min(geometry.rows - 1, Math.floor(line));
    const n = stretches?.of(last)?.first ?? last;
    const node = this._drawn.get(n)?.node;
    const at = node ? node.offsetTop + Math.min(1, line - n) * node.offsetHeight : 0;
    const mean = this._rows.offsetHeight / Math.max(1, this._drawn.size) / this._rowHeight;
    if (mean >= 1 && Math.abs(mean / this._lines - 1) > OFF) {
      this._lines = mean;
      this._offset = wrapped.offsetOf(line - 0.5, this._geometry());
      this.draw();
    }
    return below - at;
  }

  private _place(first: number, end: number, stretches: RowHeights | null): void {
    // Lines that say in text what is shown in their place have no rows.
    const rows = new Set<number>();
    for (let n = first; n < end; n++) {
      rows.add(stretches?.of(n)?.first ?? n);
    }
    for (const [n, { node }] of this._drawn) {
      if (!rows.has(n)) {
        node.remove();
        this._drawn.delete(n);
      }
    }
    const selected = this.selection;
    let before: ChildNode | null = this._rows.firstChild;
    for (const n of rows) {
      const line = this._pages.line(n);
      const inlay = stretches?.of(n) ? this._inlays.node(n, this._match !== null) : null;
      const text = line ? `${line.n} ${line.ranks?.length ?? 1} ${line.text}` : '';
      const key = inlay ? `${inlay.alone ? 'shown' : 'below'} ${text}` : text;
      let known = this._drawn.get(n);
      if (!known || known.key !== key) {
        const { _ranks: ranks, _match: match } = this;
        const { trans } = this._context;
        const node = rowOf(line, inlay, { ranks, times: this._modes.times, match, trans });
        if (known?.node.parentNode) {
          if (before === known.node) {
            before = node;
          }
          known.node.replaceWith(node);
        }
        known = { key, node };
        this._drawn.set(n, known);
      }
      const { node } = known;
      // What is not finished cannot be chosen.
      setAttribute(node, 'data-n', n < this._pages.total ? String(n) : null);
      node.classList.toggle(
        'jpd-row-selected',
        !!selected && n >= selected.first && n < selected.end
      );
      node.classList.toggle('jpd-row-current', n === this._current);
      if (node === before) {
        before = node.nextSibling;
      } else {
        this._rows.insertBefore(node, before);
      }
    }
    while (before) {
      const next: ChildNode | null = before.nextSibling;
      before.remove();
      before = next;
    }
  }

  private _onScroll(): void {
    const top = this.node.scrollTop;
    if (Math.abs(top - this._expected) < 1.5) {
      return; // our own doing
    }
    const geometry = this._geometry();
    // When its box grows, the browser moves the list to the end that was drawn. Lines may have come since.
    const isEnd = top >= this._height - this.node.clientHeight - 1;
    this._offset = isEnd ? virtual.maxOffset(geometry) : virtual.offsetOf(top, geometry);
    this._expected = top;
    this._settle(geometry);
  }

  private _onWheel(event: WheelEvent): void {
    const geometry = this._geometry();
    // Where the scroll bar is coarser than the rows, the wheel still moves by rows.
    if (virtual.scale(geometry) > 1 && event.deltaY && !event.ctrlKey) {
      const unit =
        event.deltaMode === 1 ? geometry.rowHeight : event.deltaMode === 2 ? geometry.viewport : 1;
      event.preventDefault();
      this._scrollTo(this._offset + event.deltaY * unit);
    }
  }

  private _onKey(event: KeyboardEvent): void {
    const geometry = this._geometry();
    const page = Math.max(geometry.rowHeight, geometry.viewport - geometry.rowHeight);
    if ((event.ctrlKey || event.metaKey) && event.key === 'a') {
      this._select(0, this._pages.total - 1);
    } else if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === ' ' && event.target instanceof HTMLButtonElement) {
      return;
    } else if (event.key === 'Escape' && this._selection) {
      this._selection = null;
      this.draw();
      this._moved();
    } else {
      const steps: Record<string, number> = {
        ArrowDown: geometry.rowHeight,
        ArrowUp: -geometry.rowHeight,
        PageDown: page,
        PageUp: -page,
        ' ': page,
        Home: -Infinity,
        End: Infinity
      };
      const step = steps[event.key];
      if (step === undefined) {
        return;
      }
      if (event.shiftKey) {
        this._extend(step / geometry.rowHeight);
      } else {
        this._scrollTo(this._offset + step);
      }
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** With Shift the keys select lines: from where a search stands, or the first or last one in sight. */
  private _extend(by: number): void {
    const geometry = this._geometry();
    const lines = this._pages.total;
    const { first, end } = virtual.window(this._offset, { ...geometry, rows: lines });
    if (end <= first) {
      return;
    }
    let { anchor, focus } = this._selection ?? { anchor: -1, focus: -1 };
    if (anchor < 0) {
      const found = this._current >= first && this._current < end;
      anchor = focus = found ? this._current : by > 0 ? first : end - 1;
    } else {
      focus = Math.min(lines - 1, Math.max(0, Math.round(focus + by)));
    }
    this._select(anchor, focus);
    const top = virtual.topOf(focus, geometry);
    const lowest = top + geometry.rowHeight - geometry.viewport;
    this._scrollTo(Math.min(top, Math.max(lowest, this._offset)));
    const { trans, announce } = this._context;
    const chosen = Math.abs(focus - anchor) + 1;
    announce(chosen === 1 ? trans('1 line selected') : trans('%1 lines selected', count(chosen)));
  }

  /** A press on a line's number selects the line, with Shift or dragged all lines from there. */
  private _onMouseDown(event: MouseEvent): void {
    const target = event.target as HTMLElement;
    const n = lineAt(target);
    this._dragging = event.button === 0 && target.classList.contains('jpd-number') && n !== null;
    if (this._dragging && n !== null) {
      event.preventDefault();
      this.node.focus();
      this._select(event.shiftKey && this._selection ? this._selection.anchor : n, n);
    } else if (this._selection && event.button === 0) {
      this._selection = null;
      this.draw();
      this._moved();
    }
  }

  private _onMouseOver(event: MouseEvent): void {
    const n = lineAt(event.target as HTMLElement);
    if (this._dragging && event.buttons & 1 && this._selection && n !== null) {
      this._select(this._selection.anchor, n);
    }
  }

  private _select(anchor: number, focus: number): void {
    this._selection = focus < 0 ? null : { anchor, focus };
    this.draw();
    this._moved();
  }

  private _scrollTo(offset: number): void {
    const geometry = this._geometry();
    const up = offset < this._offset;
    this._offset = virtual.clamp(offset, geometry);
    this._settle(geometry, up);
  }

  /** After a move: at the very end the list follows, but for a move up. Wrapped lines may only seem to fit. */
  private _settle(geometry: virtual.IGeometry, up = false): void {
    this.following = !up && this._offset >= virtual.maxOffset(geometry) - geometry.rowHeight / 2;
    this.draw();
    this._moved();
  }
}
