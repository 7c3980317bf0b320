/** Several runs beside each other: what differs, how their code differs, and a line for each run in each chart. */
import type { IEnvironment } from './answers/runs';
import { over } from './compare/axis';
import { diffNode } from './compare/codediff';
import { differences, differencesNode } from './compare/differences';
import { axesOf, AxisChoice, wholeLine } from './run/xaxis';
import { Chart } from './run/chart';
import { placeText, reason, runState, type IContext } from './run/context';
import { CurvesReading } from './run/curvesreading';
import { el, setText } from './run/dom';
import { logControl, smoothingControl } from './run/chartcontrols';
import { framed } from './run/bundles';
import type { ICurve, ICurves, IDisposable, IRunInfo, IRunSource } from './run/source';
import { ended } from './run/source';
import { followTheme, rankVariable } from './run/theme';
import { english, type Trans } from './run/trans';

const POINTS = 2000;
const PAUSE_MS = 500;

export interface ICompareViewOptions {
  sources: readonly IRunSource[];
  /** What a run was started with. */
  environment?: (id: string) => Promise<IEnvironment>;
  trans?: Trans;
}

interface ICompared {
  source: IRunSource;
  reading: CurvesReading;
  run: IRunInfo | null;
  curves: ICurves | null;
  environment: IEnvironment;
  shown: boolean;
  error: string | null;
}

export class CompareView implements IDisposable {
  readonly node: HTMLElement;
  private readonly _abort = new AbortController();
  private readonly _context: IContext;
  private readonly _trans: Trans;
  private readonly _runs: ICompared[];
  private readonly _legend: HTMLElement;
  private readonly _controls = el('div', { class: 'jpd-controls' });
  private readonly _differences = el('div');
  private _told = '';
  private readonly _axis: AxisChoice;
  private readonly _grid = el('div', { class: 'jpd-charts' });
  private readonly _note = el('p', { class: 'jpd-muted', role: 'status' });
  private readonly _charts = new Map<string, Chart>();
  private readonly _watches: IDisposable[] = [];
  private readonly _timers = new Map<ICompared, ReturnType<typeof setTimeout>>();
  private _smoothing = 0;
  private _log = false;

  constructor(private readonly _options: ICompareViewOptions) {
    const { sources, trans = english } = _options;
    const { signal } = this._abort;
    this._trans = trans;
    this._runs = sources.map(source => ({
      source,
      reading: new CurvesReading(source),
      run: null,
      curves: null,
      environment: {},
      shown: true,
      error: null
    }));
    this._legend = el('div', {
      class: 'jpd-compare-legend',
      role: 'group',
      'aria-label': trans('Runs')
    });
    this.node = el(
      'section',
      { class: 'jpd-run jpd-compare', 'aria-label': trans('Comparison of runs') },
      this._legend,
      this._differences,
      this._controls,
      this._note,
      this._grid
    );
    this._context = {
      source: sources[0],
      trans,
      signal,
      root: this.node,
      bundles: framed,
      announce: text => setText(this._note, text),
      lineName: index => this._name(this._runs[index]),
      axis: () => this._axis.axis
    };
    this._axis = new AxisChoice(this._context, 'step', () => {
      // A zoom is of the other axis.
      this._charts.forEach(chart => chart.zoom(null));
      this._draw();
    });
    this._controls.append(
      this._axis.node,
      smoothingControl(this._context, 0, value => {
        this._smoothing = value;
        this._draw();
      }),
      logControl(this._context, false, on => {
        this._log = on;
        this._draw();
      })
    );
    followTheme(this.node, () => this._charts.forEach(chart => chart.redraw(true)), signal);
    for (const one of this._runs) {
      this._watches.push(
        one.source.watch(change => {
          if (change.kind === 'run') {
            one.run = change.run;
            this._drawLegend();
          }
          if (change.kind === 'curves' || (change.kind === 'connection' && change.online)) {
            this._soon(one);
          }
        })
      );
      void this._load(one);
    }
    this._draw();
  }

  dispose(): void {
    this._watches.splice(0).forEach(watch => watch.dispose());
    this._timers.forEach(timer => clearTimeout(timer));
    this._abort.abort();
    this.node.remove();
  }

  private _soon(one: ICompared): void {
    if (!this._timers.has(one)) {
      this._timers.set(
        one,
        setTimeout(() => {
          this._timers.delete(one);
          void this._load(one);
        }, PAUSE_MS)
      );
    }
  }

  private async _load(one: ICompared): Promise<void> {
    try {
      const [run, curves, environment] = await Promise.all([
        one.source.run(),
        one.reading.read(POINTS),
        this._options.environment?.(one.source.id).catch(() => ({})) ?? {}
      ]);
      one.run = run;
      one.curves = curves;
      one.environment = environment;
      one.error = null;
    } catch (error) {
      one.error = reason(error);
    }
    if (!this._abort.signal.aborted) {
      this._draw();
    }
  }

  private _name(one: ICompared): string {
    const { run, source } = one;
    const same = this._runs.filter(other => other.run?.name === run?.name).length > 1;
    return run ? (same ? `${run.name} · ${source.id.slice(-4)}` : run.name) : source.id;
  }

  private _draw(): void {
    this._drawLegend();
    this._drawDifferences();
    this._axis.known = this._runs.flatMap(({ curves }) => (curves ? axesOf(curves) : []));
    const moved = this._runs.map(one => over(one.curves, this._axis.axis, startOf(one.run)));
    const curves = merge(moved.map((one, index) => (this._runs[index].shown ? one : null)));
    const all = merge(moved);
    const errors = this._runs
      .filter(one => one.error !== null)
      .map(one => this._trans('%1 cannot be read: %2', this._name(one), one.error ?? ''));
    const loading = this._runs.some(one => !one.curves && one.error === null);
    setText(
      this._note,
      errors.join(' ') ||
        (all.length
          ? ''
          : loading
            ? this._trans('Loading …')
            : this._trans('These runs have no metrics.'))
    );
    this._note.hidden = !this._note.textContent;
    const drawn = {
      smoothing: this._smoothing,
      log: this._log,
      ranks: new Set(this._runs.keys()),
      band: false,
      raw: true
    };
    const there = new Set(all.map(curve => curve.name));
    this._charts.forEach((chart, name) => (chart.node.hidden = !there.has(name)));
    for (const { name } of all) {
      const curve = curves.find(one => one.name === name) ?? { name, ranks: [], band: null };
      let chart = this._charts.get(name);
      if (!chart) {
        chart = new Chart(curve, this._context, `jpd-compare-${this._runs[0].source.id}`);
        this._charts.set(name, chart);
        this._grid.appendChild(chart.node);
      }
      chart.update(curve, drawn);
    }
  }

  /** The table above the curves, and the code of each run against that of the first. */
  private _drawDifferences(): void {
    const known = this._runs.flatMap(one => (one.run ? { ...one, run: one.run } : []));
    if (known.length < this._runs.length) {
      return; // all together, or the table would jump
    }
    const names = this._runs.map(one => this._name(one));
    const rows = differences(known, this._trans);
    const codes = known.map(one => one.run.source);
    const told = JSON.stringify([names, rows, codes]);
    if (told === this._told) {
      return;
    }
    this._told = told;
    const open = new Set(
      [...this._differences.querySelectorAll('details')].flatMap((one, at) => (one.open ? at : []))
    );
    const code = codes.slice(1).flatMap((text, at) => {
      const title = this._trans('Code of %1 against %2', names[at + 1], names[0]);
      return text === codes[0] ? [] : diffNode(codes[0], text, title, this._trans);
    });
    code.forEach((node, at) => node.toggleAttribute('open', open.has(at)));
    const same = el('p', { class: 'jpd-muted' }, this._trans('The code is the same.'));
    this._differences.replaceChildren(
      ...(rows.length ? [differencesNode(rows, names, this._trans)] : []),
      ...(code.length ? code : [same])
    );
  }

  private _drawLegend(): void {
    // Made once; afterwards only texts change, so that the focus stays.
    if (!this._legend.childElementCount) {
      this._runs.forEach((one, index) => this._legend.append(this._toggle(one, index)));
    }
    this._runs.forEach((one, index) => {
      const toggle = this._legend.children[index];
      setText(toggle.children[1], this._name(one));
      setText(toggle.children[2], one.run ? this._describe(one.run) : '');
    });
  }

  private _describe(run: IRunInfo): string {
    const kind = placeText(run, this._trans);
    const mean = run.world_size > 1 ? ` · ${this._trans('mean of ranks')}` : '';
    return `${kind}${mean}${ended(run.state) ? '' : ` · ${runState(run, this._trans)}`}`;
  }

  private _toggle(one: ICompared, index: number): HTMLElement {
    const swatch = el('i', { class: 'jpd-swatch', 'aria-hidden': 'true' });
    swatch.style.background = `var(${rankVariable(index)})`;
    const toggle = el(
      'button',
      { type: 'button', class: 'jpd-toggle', 'aria-pressed': 'true', title: one.source.id },
      swatch,
      el('span', { class: 'jpd-compare-name' }),
      el('span', { class: 'jpd-muted' })
    );
    toggle.addEventListener(
      'click',
      () => {
        one.shown = !one.shown;
        toggle.setAttribute('aria-pressed', String(one.shown));
        this._draw();
      },
      { signal: this._abort.signal }
    );
    return toggle;
  }
}

/** One curve per metric, in which the "ranks" are the runs; null stands for a run that is not shown. */
export function merge(runs: readonly (ICurves | null)[]): ICurve[] {
  const merged = new Map<string, ICurve>();
  runs.forEach((curves, index) => {
    for (const curve of curves?.curves ?? []) {
      const line = wholeLine(curve);
      if (line.steps.length) {
        const known = merged.get(curve.name) ?? { name: curve.name, ranks: [], band: null };
        known.ranks.push({ ...line, rank: index });
        merged.set(curve.name, known);
      }
    }
  });
  // What more runs have in common is more likely what they are compared for.
  return [...merged.values()].sort((a, b) => b.ranks.length - a.ranks.length);
}

function startOf(run: IRunInfo | null): number | null {
  return run ? (run.started ?? run.created) : null;
}
