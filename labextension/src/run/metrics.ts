/** All metrics of a run, and what they have in common: smoothing, axis, which ranks. */
import { Chart } from './chart';
import { reason, type IContext } from './context';
import { button, el, setText } from './dom';
import { parseRanges } from './format';
import type { IDrawn } from './series';
import type { ICurves } from './source';
import { rankVariable } from './theme';

const POINTS = 2000;
/** Five redraws a second are as many as a curve needs. */
const PAUSE_MS = 200;
/** Above this many ranks: a mean and a band, and lines only for chosen ranks. */
const LINES = 8;
const FIRST_CHARTS = 12;

let views = 0;

export class Metrics {
  readonly node: HTMLElement;
  private readonly _grid = el('div', { class: 'jpd-charts' });
  private readonly _controls: HTMLElement;
  private readonly _ranksBox = el('span', { class: 'jpd-rank-toggles' });
  private readonly _more: HTMLButtonElement;
  private readonly _error = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _charts = new Map<string, Chart>();
  private readonly _syncKey = `jpd-${++views}`;
  private _curves: ICurves | null = null;
  private _worldSize = 0;
  private _ranks = new Set<number>();
  /** Those that were switched off, which they stay when others join. */
  private readonly _off = new Set<number>();
  private _smoothing = 0;
  private _log = false;
  private _all = false;
  private _busy = false;
  private _dirty = false;
  private _visible = true;
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly _context: IContext) {
    const { trans, signal } = _context;
    this._controls = el('div', { class: 'jpd-controls' }, this._ranksBox);
    this._controls.append(
      smoothingControl(_context, value => {
        this._smoothing = value;
        this._draw();
      }),
      logControl(_context, on => {
        this._log = on;
        this._draw();
      })
    );
    this._more = button(
      { label: '', text: ' ' },
      () => {
        this._all = true;
        this._draw();
      },
      signal
    );
    this.node = el(
      'section',
      { class: 'jpd-metrics', 'aria-label': trans('Metrics'), hidden: true },
      el(
        'div',
        { class: 'jpd-bar-row' },
        el('h4', { class: 'jpd-title' }, trans('Metrics')),
        this._controls
      ),
      this._grid,
      this._more,
      this._error
    );
    signal.addEventListener('abort', () => clearTimeout(this._timer));
  }

  /** There may be new points. Fetched when visible, five times a second at most. */
  changed(worldSize: number): void {
    if (worldSize !== this._worldSize) {
      this._worldSize = worldSize;
      this._makeToggles();
    }
    this._dirty = true;
    this._fetch();
  }

  /** The theme's colours have changed. */
  recolour(): void {
    this._charts.forEach(chart => chart.redraw(true));
  }

  set visible(visible: boolean) {
    this._visible = visible;
    this._fetch();
  }

  private _fetch(): void {
    const { source, signal, trans } = this._context;
    if (!this._dirty || this._busy || !this._visible || signal.aborted) {
      return;
    }
    this._dirty = false;
    this._busy = true;
    const began = performance.now();
    source
      .curves(POINTS)
      .then(curves => {
        this._curves = curves;
        setText(this._error, curves.problem ?? '');
        this._error.hidden = !curves.problem;
        this._draw();
      })
      .catch((error: unknown) => {
        this._error.hidden = false;
        setText(this._error, trans('The metrics cannot be read: %1', reason(error)));
      })
      .finally(() => {
        // Where drawing is slow, the page gets at least half of the time.
        const spent = performance.now() - began;
        this._timer = setTimeout(
          () => {
            this._busy = false;
            this._fetch();
          },
          Math.max(PAUSE_MS - spent, spent)
        );
      });
  }

  private _draw(): void {
    if (!this._curves || this._context.signal.aborted) {
      return;
    }
    const { curves, problem } = this._curves;
    const { trans } = this._context;
    this.node.hidden = !curves.length && !problem;
    const shown = this._all ? curves : curves.slice(0, FIRST_CHARTS);
    this._more.hidden = shown.length === curves.length;
    setText(this._more, trans('Show %1 more metrics', curves.length - shown.length));
    for (const curve of shown) {
      let chart = this._charts.get(curve.name);
      if (!chart) {
        chart = new Chart(curve, this._context, this._syncKey, zoom =>
          // All charts have the same steps.
          this._charts.forEach(other => other.zoom(zoom))
        );
        this._charts.set(curve.name, chart);
        this._grid.appendChild(chart.node);
      }
      chart.update(curve, this._drawn());
    }
  }

  private _drawn(): IDrawn {
    const band = this._worldSize > LINES;
    return {
      smoothing: this._smoothing,
      log: this._log,
      ranks: this._ranks,
      band,
      raw: this._ranks.size + (band ? 1 : 0) <= LINES
    };
  }

  private _makeToggles(): void {
    const { trans, signal } = this._context;
    const size = this._worldSize;
    if (size > LINES && this._ranksBox.querySelector('input')) {
      return;
    }
    const all = Array.from({ length: size <= LINES ? size : 0 }, (_, rank) => rank);
    this._ranks = new Set(all.filter(rank => !this._off.has(rank)));
    this._ranksBox.replaceChildren();
    if (size < 2) {
      return;
    }
    if (size > LINES) {
      const input = el('input', {
        class: 'jpd-input jpd-ranks-input',
        placeholder: trans('ranks, e.g. 0-3,7'),
        'aria-label': trans('Ranks to draw besides the mean and its band'),
        spellcheck: 'false'
      });
      input.addEventListener(
        'input',
        () => {
          const ranks = parseRanges(input.value, this._worldSize);
          input.setAttribute('aria-invalid', String(ranks === null));
          if (ranks) {
            this._ranks = new Set(ranks);
            this._draw();
          }
        },
        { signal }
      );
      const legend = el(
        'span',
        { class: 'jpd-muted' },
        el('i', { class: 'jpd-swatch jpd-swatch-mean' })
      );
      legend.append(trans('mean, min–max'));
      this._ranksBox.append(legend, input);
      return;
    }
    this._ranksBox.append(
      ...all.map(rank => {
        const swatch = el('i', { class: 'jpd-swatch' });
        swatch.style.background = `var(${rankVariable(rank)})`;
        const toggle = el(
          'button',
          {
            type: 'button',
            class: 'jpd-toggle',
            'aria-pressed': String(this._ranks.has(rank)),
            'aria-label': trans('Rank %1', rank)
          },
          swatch,
          String(rank)
        );
        toggle.addEventListener(
          'click',
          () => {
            const on = !this._ranks.delete(rank);
            if (on) {
              this._ranks.add(rank);
              this._off.delete(rank);
            } else {
              this._off.add(rank);
            }
            toggle.setAttribute('aria-pressed', String(on));
            this._draw();
          },
          { signal }
        );
        return toggle;
      })
    );
  }
}

/** A slider from 0 (none) to 0.99. */
export function smoothingControl(
  { trans, signal }: IContext,
  changed: (value: number) => void
): HTMLElement {
  const slider = el('input', {
    type: 'range',
    min: 0,
    max: 0.99,
    step: 0.01,
    value: 0,
    'aria-label': trans('Smoothing')
  });
  const shown = el('output', {}, '0');
  slider.addEventListener(
    'input',
    () => {
      setText(shown, slider.value);
      changed(Number(slider.value));
    },
    { signal }
  );
  return el('label', { class: 'jpd-smoothing' }, el('span', {}, trans('Smoothing')), slider, shown);
}

export function logControl(
  { trans, signal }: IContext,
  changed: (on: boolean) => void
): HTMLElement {
  const toggle = el(
    'button',
    {
      type: 'button',
      class: 'jpd-toggle',
      'aria-pressed': 'false',
      title: trans('Logarithmic axis')
    },
    trans('log')
  );
  toggle.addEventListener(
    'click',
    () => {
      const on = toggle.getAttribute('aria-pressed') !== 'true';
      toggle.setAttribute('aria-pressed', String(on));
      changed(on);
    },
    { signal }
  );
  return toggle;
}
