/** One metric as a chart: lines of ranks, a band over many of them, values under the pointer. */
import uPlot from 'uplot';
import { moved, placeName, type Axis } from './xaxis';
import { overText, droppedText, equalText, lastText, lastValues, specialText } from './charttitle';
import { reason, type IContext } from './context';
import { curveCsv } from './csv';
import { button, el, icon, saveFile, setAttribute, setText, toggle } from './dom';
import { picture } from './picture';
import { lineColour, plotOptions } from './plotoptions';
import { chartData, sameDrawn, type IChartData, type IDrawn } from './series';
import type { ICurve } from './source';
import { placeTip, tipRows } from './charttip';
import { ValueRange, type Range } from './valuerange';
import { wheelZoom, zoomed, type IZoom } from './zoom';

const HEIGHT = 168;
const LARGE_HEIGHT = 380;

/** What the place of a chart does for it. */
export interface IChartHost {
  /** The user zooms, or ends it (null); without it the chart alone is zoomed. */
  zoom?(zoom: IZoom | null): void;
  /** The user has made this chart large. */
  enlarged?(): void;
  /** Reads all points, to be saved as a table; without it those that are drawn are all. */
  whole?(): Promise<ICurve | undefined>;
  /** The user wants the chart among the first ones, or no more; without it that cannot be wished. */
  pin?(on: boolean): void;
  pinned?: boolean;
  /** Between which values it is drawn, and that the user has changed that. */
  range?: Range;
  ranged?(range: Range): void;
}

export class Chart {
  readonly node: HTMLElement;
  private readonly _value = el('span', { class: 'jpd-chart-value' });
  private readonly _equal = el('span', { class: 'jpd-chart-equal jpd-muted' });
  private readonly _special = el('div', { class: 'jpd-chart-special', hidden: true });
  private readonly _box = el('div', { class: 'jpd-chart-box', tabindex: 0, role: 'img' });
  private readonly _tip = el('div', { class: 'jpd-tip', hidden: true });
  private readonly _reset: HTMLButtonElement;
  private readonly _enlarge: HTMLButtonElement;
  private _plot: uPlot | null = null;
  private _shape = '';
  /** The colours have changed since it was drawn, which may have been out of sight. */
  private _stale = false;
  private _data: IChartData = { xs: [], lines: [], dropped: 0 };
  private _curve: ICurve;
  /** The same over the axis that is drawn. */
  private _over: ICurve;
  private readonly _range: ValueRange;
  private _drawn: IDrawn | null = null;
  private _zoom: IZoom | null = null;

  constructor(
    curve: ICurve,
    private readonly _context: IContext,
    private readonly _syncKey: string,
    private readonly _host: IChartHost = {}
  ) {
    this._curve = this._over = curve;
    const { trans, signal } = _context;
    this._range = new ValueRange(curve.name, _context, _host.range, range => {
      this.redraw(true);
      _host.ranged?.(range);
    });
    this._reset = button(
      { label: trans('Reset zoom'), icon: 'reset', class: 'jpd-chart-on' },
      () => this._zoomTo(null),
      signal
    );
    this._reset.hidden = true;
    this._enlarge = button(
      { label: trans('Enlarge %1', curve.name), icon: 'enlarge' },
      () => this._setLarge(!this.large),
      signal
    );
    this._enlarge.setAttribute('aria-pressed', 'false');
    this.node = el(
      'figure',
      { class: 'jpd-chart' },
      el(
        'figcaption',
        {},
        el('b', { class: 'jpd-chart-name', title: curve.name }, curve.name),
        this._value,
        this._equal,
        el(
          'span',
          { class: 'jpd-chart-tools' },
          this._reset,
          this._pin(),
          this._range.button,
          this._enlarge,
          button(
            { label: trans('Save %1 as a picture (PNG)', curve.name), icon: 'image' },
            () => this._savePng(),
            signal
          ),
          button(
            { label: trans('Save %1 as a table (CSV)', curve.name), icon: 'table' },
            () => void this._saveCsv(),
            signal
          )
        )
      ),
      this._special,
      this._range.node,
      this._box,
      this._tip
    );
    const resize = new ResizeObserver(() => this._resize());
    resize.observe(this._box);
    signal.addEventListener('abort', () => {
      resize.disconnect();
      this.dispose();
    });
    this._box.addEventListener('keydown', event => this._key(event), { signal });
    this._box.addEventListener('blur', () => this._point(null), { signal });
    const turned = (event: WheelEvent) => {
      const zoom = this._plot && wheelZoom(this._plot, event);
      if (zoom !== undefined) {
        this._zoomTo(zoom);
      }
    };
    this._box.addEventListener('wheel', turned, { signal, passive: false });
  }

  /** 0 while it is not drawn. */
  get width(): number {
    return this._box.clientWidth;
  }

  /** How many steps there are from the first to the last. */
  get length(): number {
    const { xs } = this._data;
    return xs.length ? xs[xs.length - 1] - xs[0] : 0;
  }

  /** Whether it takes the whole width, and more height. */
  get large(): boolean {
    return this.node.classList.contains('jpd-chart-large');
  }

  set large(large: boolean) {
    if (large !== this.large) {
      this.node.classList.toggle('jpd-chart-large', large);
      this._enlarge.setAttribute('aria-pressed', String(large));
      this._resize();
    }
  }

  private readonly _lineName = (line: number): string =>
    this._context.lineName?.(line) ?? this._context.trans('rank %1', line);

  private _pin(): HTMLElement | null {
    const { trans, signal } = this._context;
    const { pin, pinned = false } = this._host;
    const label = trans('Pin %1: show it first', this._curve.name);
    return pin ? toggle({ text: icon('pin'), label, on: pinned }, on => pin(on), signal) : null;
  }

  private _setLarge(large: boolean): void {
    this.large = large;
    if (large) {
      this._host.enlarged?.();
      this.node.scrollIntoView?.({ block: 'nearest' });
    }
  }

  private get _axis(): Axis {
    return this._context.axis?.() ?? 'step';
  }

  private get _height(): number {
    return this.large ? LARGE_HEIGHT : HEIGHT;
  }

  update(curve: ICurve, drawn: IDrawn): void {
    if (curve === this._curve && this._drawn && sameDrawn(drawn, this._drawn)) {
      return;
    }
    this._curve = curve;
    this._drawn = drawn;
    this._over = drawn.place ? moved(curve, drawn.place) : curve;
    this._data = chartData(this._over, drawn);
    const { trans } = this._context;
    const last = lastValues(this._over, drawn.band ? undefined : drawn.ranks);
    const texts = [specialText(curve, trans), droppedText(this._data, drawn.log, trans)];
    const wrong = texts.filter(Boolean).join(', ');
    const said = last ? lastText(last, trans) : '';
    setText(this._value, said);
    setAttribute(this._value, 'title', said || null);
    setText(this._special, wrong);
    setText(this._equal, equalText(this._data, this._lineName, trans));
    setAttribute(this._special, 'title', wrong || null);
    this._special.hidden = !wrong;
    const text = overText(curve.name, this._axis, last, trans);
    const begun = (curve.attempts ?? []).map(({ attempt, step }) =>
      trans('attempt %1 from step %2', attempt, step)
    );
    setAttribute(this._box, 'aria-label', [text, wrong, ...begun].filter(Boolean).join('; '));
    this.redraw();
  }

  /** Draw anew; from scratch when the lines, the axes or the colours are others. */
  redraw(recolour = false): void {
    const width = this._box.clientWidth;
    this._stale ||= recolour;
    if (!this._drawn || width < 40 || this._context.signal.aborted) {
      return;
    }
    const { lines, xs } = this._data;
    const names = lines.map(line => `${line.rank}${line.raw}`);
    const shape = [this._drawn.log, this._axis, xs.length === 1, ...names].join();
    if (!this._plot || this._stale || shape !== this._shape) {
      this._shape = shape;
      this._stale = false;
      this._plot?.destroy();
      this._plot = new uPlot(this._options(width), this._aligned(), this._box);
    } else {
      this._plot.setData(this._aligned(), !this._zoom);
    }
    // Around a single step uPlot would begin at 0 and end at its double.
    const steps = this._zoom ?? (xs.length === 1 ? { min: xs[0] - 1, max: xs[0] + 1 } : null);
    if (steps) {
      this._plot.setScale('x', steps);
    }
  }

  dispose(): void {
    this._plot?.destroy();
    this._plot = null;
  }

  private _aligned(): uPlot.AlignedData {
    return [this._data.xs, ...this._data.lines.map(line => line.ys)] as uPlot.AlignedData;
  }

  private _options(width: number): uPlot.Options {
    return plotOptions(this._context.root, this._data, {
      width,
      height: this._height,
      log: !!this._drawn?.log,
      axis: this._axis,
      within: this._range.within.bind(this._range),
      marks: () =>
        (this._over.attempts ?? []).map(({ attempt, step }) => ({
          step,
          text: this._context.trans('attempt %1', attempt)
        })),
      syncKey: this._syncKey,
      pointed: plot => this._showTip(plot),
      selected: plot => this._select(plot),
      unzoomed: () => this._zoomTo(null)
    });
  }

  private _select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width >= 4) {
      const zoom = { min: plot.posToVal(left, 'x'), max: plot.posToVal(left + width, 'x') };
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this._zoomTo(zoom);
    }
  }

  private _zoomTo(zoom: IZoom | null): void {
    if (this._host.zoom) {
      this._host.zoom(zoom);
    } else {
      this.zoom(zoom);
    }
  }

  /** Show these steps; all with null. */
  zoom(zoom: IZoom | null): void {
    const hadFocus = document.activeElement === this._reset;
    this._zoom = zoom;
    this._reset.hidden = !zoom;
    if (!zoom && hadFocus) {
      this._box.focus();
    }
    this.redraw();
  }

  private _key(event: KeyboardEvent): void {
    const plot = this._plot;
    if (!plot || !this._data.xs.length || event.ctrlKey || event.metaKey || event.altKey) {
      return; // Ctrl and + enlarge the page
    }
    const [first, end] = plot.series[0].idxs ?? [0, this._data.xs.length - 1];
    const now = plot.cursor.idx ?? end;
    const by = event.shiftKey ? Math.max(1, Math.round((end - first) / 20)) : 1;
    if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
      const next = plot.cursor.idx === null ? end : now + (event.key === 'ArrowRight' ? by : -by);
      this._point(Math.min(end, Math.max(first, next)));
      this._context.announce([...this._tip.children].map(row => row.textContent).join(', '));
    } else if (event.key === 'Escape') {
      this._point(null);
      if (this.large && !this._zoom) {
        this._setLarge(false);
      }
      this._zoomTo(null);
    } else if (event.key === '+') {
      this._zoomTo(zoomed(plot, this._data.xs[now], 0.5));
    } else if (event.key === '-') {
      this._zoomTo(zoomed(plot, this._data.xs[now], 2));
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Put the cursor on a point, as the pointer would. */
  private _point(index: number | null): void {
    const plot = this._plot;
    if (!plot) {
      return;
    }
    if (index === null) {
      plot.setCursor({ left: -10, top: -10 });
      return;
    }
    const y = this._data.lines.find(line => typeof line.ys[index] === 'number')?.ys[index];
    const left = plot.valToPos(this._data.xs[index], 'x');
    const top = typeof y === 'number' ? plot.valToPos(y, 'y') : 0;
    plot.setCursor({ left, top });
  }

  private _showTip(plot: uPlot): void {
    const { idx, left = -1, top = 0 } = plot.cursor;
    // A chart that only follows another one's pointer has its line, but no tip of its own.
    const own = this._box.matches(':hover') || document.activeElement === this._box;
    if (!own || left < 0 || idx === null || idx === undefined) {
      this._tip.hidden = true;
      return;
    }
    const far = (y: number) => Math.abs(plot.valToPos(y, 'y') - (top ?? 0));
    const { root } = this._context;
    const rows = tipRows(this._over, this._data, idx, far, this._context, line =>
      lineColour(root, line)
    );
    this._tip.hidden = !rows.length;
    if (!rows.length) {
      return;
    }
    this._tip.replaceChildren(
      el(
        'div',
        { class: 'jpd-muted' },
        placeName(this._axis, this._data.xs[idx], this._context.trans)
      ),
      ...rows
    );
    placeTip(this._tip, this._box, left + plot.over.offsetLeft);
  }

  private _resize(): void {
    const width = this._box.clientWidth;
    if (width < 40) {
      return;
    }
    if (!this._plot || this._stale) {
      this.redraw();
    } else if (this._plot.width !== width || this._plot.height !== this._height) {
      this._plot.setSize({ width, height: this._height });
    }
  }

  private async _saveCsv(): Promise<void> {
    try {
      const curve = (await this._host.whole?.()) ?? this._curve;
      const table = new Blob([curveCsv(curve)], { type: 'text/csv;charset=utf-8' });
      saveFile(`${this._fileName()}.csv`, table);
    } catch (error) {
      this._context.announce(reason(error));
    }
  }

  private _savePng(): void {
    if (!this._plot) {
      return;
    }
    const canvas = picture(this._plot, this._curve.name, this._context.root);
    canvas?.toBlob(blob => {
      if (blob) {
        saveFile(`${this._fileName()}.png`, blob);
      }
    });
  }

  private _fileName(): string {
    return `${this._context.source.id}-${this._curve.name}`.replace(/[^\w.-]+/g, '_');
  }
}
