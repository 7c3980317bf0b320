/** All metrics of a run, and what they have in common: smoothing, axis, which ranks. */
import { axesOf, AxisChoice, isEpoch, placeOn, type Place } from './xaxis';
import { Chart, type IChartHost } from './chart';
import { logControl, smoothingControl } from './chartcontrols';
import { chartSettings, keepChartSettings, type IChartSettings } from './chartsettings';
import { badRanks } from './charttitle';
import { reason, type IContext } from './context';
import { CurvesReading } from './curvesreading';
import { el, setText } from './dom';
import { ownValue } from './ownvalue';
import { LINES, RankChoice } from './rankchoice';
import { RanksShown } from './ranksshown';
import { FEW, grouped, matching, Section } from './sections';
import { isPoint, type IDrawn } from './series';
import { Rereading } from './rereading';
import { ElementsInSight } from './elementsinsight';
import { ended, type ICurve, type ICurves, type IRunInfo } from './source';
import { Staleness } from './staleness';
import type { IZoom } from './zoom';

/** No chart has more points, and a chart has at most two for each pixel. */
const MOST_POINTS = 2000;
const LEAST_POINTS = 400;
/** In a table that is saved. */
const SAVED_POINTS = 100_000;
/** Names of so many metrics fit into an address. */
const MOST_NAMES = 50;
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
  /** The metrics that have a chart now, in their order. */
  private _shown: string[] = [];
  private readonly _syncKey = `jpd-${++views}`;
  private _curves: ICurves | null = null;
  private readonly _controls: HTMLElement;
  private readonly _charted: IContext;
  private _run: IRunInfo | null = null;
  private _settings: IChartSettings = chartSettings(null);
  private _axis: AxisChoice | null = null;
  /** Where points are on the axis, and for which axis, start and epochs that is. */
  private _place: { of: unknown[]; place?: Place } = { of: [] };
  private _visible = true;
  private _zoom: IZoom | null = null;
  private readonly _rereading: Rereading;
  private readonly _reading: CurvesReading;
  private readonly _sight: ElementsInSight;
  private readonly _staleness: Staleness;

  /** The section is about to be shown. */
  onShown: (() => void) | null = null;
  /** Told of the ranks whose values are no numbers any more, and what they are. */
  onBad: ((ranks: ReadonlyMap<number, string>) => void) | null = null;

  constructor(
    private readonly _context: IContext,
    ranks = new RanksShown()
  ) {
    const { trans, signal } = _context;
    this._rereading = new Rereading(
      () => this._read(),
      signal,
      () => this._visible
    );
    this._reading = new CurvesReading(_context.source);
    this._sight = new ElementsInSight(signal, () => this._rereading.changed());
    this._staleness = new Staleness(_context);
    this._choice = new RankChoice(_context, ranks, () => this._choose());
    this._filter = el('input', {
      class: 'jpd-input jpd-metric-filter',
      placeholder: trans('Filter metrics'),
      'aria-label': trans('Filter metrics by name'),
      spellcheck: 'false',
      hidden: true
    });
    this._filter.addEventListener('input', () => this._choose(), { signal });
    this._controls = el('div', { class: 'jpd-controls' }, this._filter, this._choice.node);
    this._charted = { ..._context, axis: () => this._axis?.axis ?? 'step' };
    setText(this._none, trans('No matching metric'));
    this.node = el(
      'section',
      { class: 'jpd-metrics', 'aria-label': trans('Metrics'), hidden: true },
      el(
        'div',
        { class: 'jpd-bar-row' },
        el('h4', { class: 'jpd-title' }, trans('Metrics')),
        this._staleness.node,
        this._controls
      ),
      this._body,
      this._none,
      this._error
    );
  }

  /** How the run stands now. */
  update(run: IRunInfo): void {
    const first = !this._run;
    this._run = run;
    this._choice.update(run.world_size);
    if (first) {
      this._settings = chartSettings(run.notebook);
      this._controls.append(el('div', { class: 'jpd-controls' }, ...this._makeControls()));
    }
  }

  private _makeControls(): HTMLElement[] {
    const { _context: context, _settings: kept } = this;
    this._axis = new AxisChoice(context, kept.axis, axis => {
      this._zoom = null; // it is of the other axis
      this._charts.forEach(chart => chart.zoom(null));
      this._set({ axis });
      this._rereading.changed();
    });
    return [
      this._axis.node,
      smoothingControl(context, kept.smoothing, smoothing => this._set({ smoothing })),
      logControl(context, kept.log, log => this._set({ log }))
    ];
  }

  private _set(chosen: Partial<IChartSettings>): void {
    Object.assign(this._settings, chosen);
    keepChartSettings(this._run?.notebook ?? null, this._settings);
    this._draw();
  }

  /** There may be new points. Fetched when visible, five times a second at most. */
  changed(): void {
    this._staleness.changed();
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
    const { trans } = this._context;
    const began = performance.now();
    let drawn = 0;
    this._staleness.asking();
    try {
      // At first only the names: the charts have their places then, and some are in sight.
      const names = this._curves ? this._wanted() : [];
      const ranks = this._choice.asked;
      const curves = await this._reading.read(this._points(), { names, ranks });
      const received = performance.now();
      this._curves = curves;
      setText(this._error, curves.problem ?? '');
      this._error.hidden = !curves.problem;
      this._draw();
      this._staleness.answered(true);
      this.onBad?.(badRanks(curves.bad ?? [], trans));
      drawn = performance.now() - received;
      if (this._wanted().some(name => !names.includes(name))) {
        this._rereading.changed();
        return 0;
      }
    } catch (error) {
      this._staleness.answered(false);
      this._error.hidden = false;
      setText(this._error, trans('The metrics cannot be read: %1', reason(error)));
    }
    // Where drawing is slow, the page gets at least half of the time.
    return Math.max(PAUSE_MS - (performance.now() - began), drawn);
  }

  /** The metrics whose charts are in sight, and what tells the epochs. */
  private _wanted(): string[] {
    const epochs =
      this._charted.axis?.() === 'epoch' ? this._curves?.names.find(isEpoch) : undefined;
    const seen = this._shown.filter(name =>
      this._sight.has((this._charts.get(name) as Chart).node)
    );
    return [...new Set([...(epochs ? [epochs] : []), ...seen])].slice(0, MOST_NAMES);
  }

  /** Two for each pixel of the widest chart, in the steps that are shown. */
  private _points(): number {
    const shown = this._shown.map(name => this._charts.get(name) as Chart);
    const width = Math.max(0, ...shown.map(chart => chart.width));
    const parts = this._zoom
      ? Math.max(1, ...shown.map(chart => chart.length)) / (this._zoom.max - this._zoom.min)
      : 1;
    const points = 100 * Math.ceil((2 * width * Math.max(1, parts)) / 100);
    return Math.min(MOST_POINTS, Math.max(LEAST_POINTS, points));
  }

  /** Other charts or ranks are shown. */
  private _choose(): void {
    this._draw();
    this._rereading.changed();
  }

  private _draw(): void {
    if (!this._curves || !this._run || this._context.signal.aborted) {
      return;
    }
    const { curves, names: all, problem } = this._curves;
    const hidden = !all.length && !problem;
    if (this.node.hidden && !hidden) {
      this.onShown?.();
    }
    this.node.hidden = hidden;
    this._filter.hidden = all.length <= FEW;
    const typed = this._filter.hidden ? '' : this._filter.value;
    const meant = matching(typed);
    const byName = new Map(curves.map(curve => [curve.name, curve]));
    const sections = new Set<Section>();
    let before = 0;
    let found = 0;
    this._shown = [];
    if (this._axis) {
      this._axis.known = axesOf(this._curves);
    }
    const drawn = this._drawn();
    for (const { prefix, names } of grouped(all, this._settings.pinned)) {
      const section = this._section(prefix, before < OPEN_CHARTS);
      const own = names.filter(meant);
      section.filtered = typed.trim() !== '';
      section.node.hidden = !own.length;
      this._fill(section, section.shown(own), byName, drawn);
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
    this._none.hidden = found > 0 || !all.length;
  }

  private _section(prefix: string, open: boolean): Section {
    let section = this._sections.get(prefix);
    if (!section) {
      section = new Section(prefix, open, this._context, () => this._choose());
      this._sections.set(prefix, section);
      if (prefix) {
        this._body.append(section.node);
      } else {
        this._body.prepend(section.node);
      }
    }
    return section;
  }

  private _fill(
    section: Section,
    names: readonly string[],
    curves: Map<string, ICurve>,
    drawn: IDrawn
  ): void {
    const found = names.map(name => curves.get(name) ?? { name, ranks: [], band: null });
    const charts = found.map(curve => this._chart(curve));
    this._shown.push(...names);
    const nodes = charts.map(chart => chart.node);
    // Moved only where others stand there.
    if (
      nodes.length !== section.grid.children.length ||
      nodes.some((node, i) => node !== section.grid.children[i])
    ) {
      const focused = document.activeElement as HTMLElement | null;
      section.grid.replaceChildren(...nodes);
      if (section.grid.contains(focused)) {
        focused?.focus({ preventScroll: true });
      }
    }
    const over = this._run !== null && ended(this._run.state);
    charts.forEach((chart, i) => {
      chart.update(found[i], drawn);
      // Of one point all is said above it. A run that goes on will have more.
      chart.node.classList.toggle('jpd-chart-single', over && isPoint(found[i]));
    });
  }

  private _chart(curve: ICurve): Chart {
    let chart = this._charts.get(curve.name);
    if (!chart) {
      chart = new Chart(curve, this._charted, this._syncKey, this._host(curve.name));
      this._charts.set(curve.name, chart);
      this._sight.watch(chart.node);
    }
    return chart;
  }

  private _host(name: string): IChartHost {
    const { pinned, ranges } = this._settings;
    return {
      // All charts have the same axis.
      zoom: zoom => {
        this._zoom = zoom;
        this._charts.forEach(other => other.zoom(zoom));
        this._rereading.changed();
      },
      enlarged: () => {
        this._charts.forEach((other, of) => {
          other.large = of === name;
        });
        this._rereading.changed();
      },
      whole: () => this._whole(name),
      pinned: pinned.includes(name),
      pin: on => {
        const others = this._settings.pinned.filter(one => one !== name);
        this._set({ pinned: on ? [...others, name] : others });
        this._rereading.changed();
      },
      range: ownValue(ranges, name),
      ranged: range => this._set({ ranges: { ...this._settings.ranges, [name]: range } })
    };
  }

  /** All points of all ranks, as far as they are sent at all. */
  private async _whole(name: string): Promise<ICurve | undefined> {
    const query = { names: [name], ranks: 'all' };
    const found = await this._context.source.curves(SAVED_POINTS, query);
    return found.curves.find(curve => curve.name === name);
  }

  private _drawn(): IDrawn {
    const { band, ranks } = this._choice;
    const { smoothing, log } = this._settings;
    const raw = ranks.size + (band ? 1 : 0) <= 2 * LINES;
    return { smoothing, log, ranks, band, raw, place: this._placed() };
  }

  /** The same as long as nothing has changed, so that nothing is drawn anew. */
  private _placed(): Place | undefined {
    const axis = this._charted.axis?.() ?? 'step';
    const start = this._run?.started ?? this._run?.created ?? null;
    const curves = this._curves?.curves ?? [];
    const of = [axis, start, axis === 'epoch' ? curves.find(one => isEpoch(one.name)) : null];
    if (of.some((one, i) => one !== this._place.of[i])) {
      this._place = { of, place: placeOn(axis, start, curves) };
    }
    return this._place.place;
  }
}
