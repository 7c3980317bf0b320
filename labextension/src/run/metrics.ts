/** All metrics of a run, and what they have in common: smoothing, axis, which ranks. */
import { Chart } from './chart';
import { badRanks } from './charttitle';
import { reason, type IContext } from './context';
import { el, setText } from './dom';
import { LINES, RankChoice } from './rankchoice';
import { FEW, grouped, matching, Section } from './sections';
import type { IDrawn } from './series';
import { Rereading } from './rereading';
import type { ICurve, ICurves } from './source';

const POINTS = 2000;
/** Five redraws a second are as many as a curve needs. */
const PAUSE_MS = 200;
/** Sections are open at first until so many charts are in sight. */
const OPEN_CHARTS = 12;

let views = 0;

export class Metrics {
  readonly node: HTMLElement;
  private readonly _body = el('div');
  private readonly _choice: RankChoice;
  private readonly _filter: HTMLInputElement;
  private readonly _none = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _error = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _charts = new Map<string, Chart>();
  private readonly _sections = new Map<string, Section>();
  private readonly _syncKey = `jpd-${++views}`;
  private _curves: ICurves | null = null;
  private _smoothing = 0;
  private _log = false;
  private _visible = true;
  private readonly _rereading: Rereading;

  /** Told of the ranks whose values are no numbers any more, and what they are. */
  onBad: ((ranks: ReadonlyMap<number, string>) => void) | null = null;

  constructor(private readonly _context: IContext) {
    const { trans, signal } = _context;
    this._rereading = new Rereading(
      () => this._read(),
      signal,
      () => this._visible
    );
    this._choice = new RankChoice(_context, () => this._draw());
    this._filter = el('input', {
      class: 'jpd-input jpd-metric-filter',
      placeholder: trans('filter metrics'),
      'aria-label': trans('Filter metrics by name'),
      spellcheck: 'false',
      hidden: true
    });
    this._filter.addEventListener('input', () => this._draw(), { signal });
    const controls = el('div', { class: 'jpd-controls' }, this._filter, this._choice.node);
    controls.append(
      smoothingControl(_context, value => {
        this._smoothing = value;
        this._draw();
      }),
      logControl(_context, on => {
        this._log = on;
        this._draw();
      })
    );
    setText(this._none, trans('No metric is called like that'));
    this.node = el(
      'section',
      { class: 'jpd-metrics', 'aria-label': trans('Metrics'), hidden: true },
      el(
        'div',
        { class: 'jpd-bar-row' },
        el('h4', { class: 'jpd-title' }, trans('Metrics')),
        controls
      ),
      this._body,
      this._none,
      this._error
    );
  }

  /** There may be new points. Fetched when visible, five times a second at most. */
  changed(worldSize: number): void {
    this._choice.update(worldSize);
    this._rereading.changed();
  }

  /** The theme's colours have changed. */
  recolour(): void {
    this._charts.forEach(chart => chart.redraw(true));
  }

  set visible(visible: boolean) {
    this._visible = visible;
    this._rereading.goOn();
  }

  private async _read(): Promise<number> {
    const { source, trans } = this._context;
    const began = performance.now();
    try {
      const curves = await source.curves(POINTS);
      this._curves = curves;
      setText(this._error, curves.problem ?? '');
      this._error.hidden = !curves.problem;
      this._draw();
      this.onBad?.(badRanks(curves.curves, trans));
    } catch (error) {
      this._error.hidden = false;
      setText(this._error, trans('The metrics cannot be read: %1', reason(error)));
    }
    // Where drawing is slow, the page gets at least half of the time.
    const spent = performance.now() - began;
    return Math.max(PAUSE_MS - spent, spent);
  }

  private _draw(): void {
    if (!this._curves || this._context.signal.aborted) {
      return;
    }
    const { curves, problem } = this._curves;
    this.node.hidden = !curves.length && !problem;
    this._filter.hidden = curves.length <= FEW;
    const typed = this._filter.hidden ? '' : this._filter.value;
    const meant = matching(typed);
    const byName = new Map(curves.map(curve => [curve.name, curve]));
    const sections = new Set<Section>();
    let before = 0;
    let found = 0;
    for (const { prefix, names } of grouped([...byName.keys()])) {
      const section = this._section(prefix, before < OPEN_CHARTS);
      const own = names.filter(meant);
      section.filtered = typed.trim() !== '';
      section.node.hidden = !own.length;
      this._fill(section, section.shown(own), byName);
      sections.add(section);
      before += names.length;
      found += own.length;
    }
    for (const [prefix, section] of this._sections) {
      if (!sections.has(section)) {
        section.node.remove();
        this._sections.delete(prefix);
      }
    }
    this._none.hidden = found > 0 || !curves.length;
  }

  private _section(prefix: string, open: boolean): Section {
    let section = this._sections.get(prefix);
    if (!section) {
      section = new Section(prefix, open, this._context, () => this._draw());
      this._sections.set(prefix, section);
      if (prefix) {
        this._body.append(section.node);
      } else {
        this._body.prepend(section.node);
      }
    }
    return section;
  }

  private _fill(section: Section, names: readonly string[], curves: Map<string, ICurve>): void {
    const charts = names.map(name => this._chart(curves.get(name) as ICurve));
    const nodes = charts.map(chart => chart.node);
    // Moved only where others stand there: a node that is moved loses its focus.
    if (
      nodes.length !== section.grid.children.length ||
      nodes.some((node, i) => node !== section.grid.children[i])
    ) {
      section.grid.replaceChildren(...nodes);
    }
    charts.forEach((chart, i) => chart.update(curves.get(names[i]) as ICurve, this._drawn()));
  }

  private _chart(curve: ICurve): Chart {
    let chart = this._charts.get(curve.name);
    if (!chart) {
      chart = new Chart(
        curve,
        this._context,
        this._syncKey,
        // All charts have the same steps.
        zoom => this._charts.forEach(other => other.zoom(zoom)),
        enlarged =>
          this._charts.forEach(other => {
            other.large = other === enlarged;
          })
      );
      this._charts.set(curve.name, chart);
    }
    return chart;
  }

  private _drawn(): IDrawn {
    const { band, ranks } = this._choice;
    return {
      smoothing: this._smoothing,
      log: this._log,
      ranks,
      band,
      raw: ranks.size + (band ? 1 : 0) <= 2 * LINES
    };
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
