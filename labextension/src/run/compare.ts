/** Several runs' curves in the same charts: one line for each run, the mean over its ranks. */
import { Chart } from './chart';
import { reason, stateName, type IContext } from './context';
import { el, setText } from './dom';
import { notice } from './failure';
import { smoothingControl, logControl } from './metrics';
import { ended, type ICurve, type ICurves, type IDisposable, type IRankCurve } from './source';
import type { IRunInfo, IRunSource } from './source';
import { followTheme, rankVariable } from './theme';
import { english, type Trans } from './trans';

const POINTS = 2000;
const PAUSE_MS = 500;

let views = 0;

export class CompareView implements IDisposable {
  readonly node: HTMLElement;
  private readonly _abort = new AbortController();
  private readonly _context: IContext;
  private readonly _legend = el('div', { class: 'jpd-legend' });
  private readonly _notices = el('div', { class: 'jpd-notices' });
  private readonly _grid = el('div', { class: 'jpd-charts' });
  private readonly _charts = new Map<string, Chart>();
  private readonly _runs: (IRunInfo | null)[];
  private readonly _curves: (ICurves | null)[];
  private readonly _hidden = new Set<number>();
  private readonly _watching: IDisposable[];
  private readonly _dirty = new Set<number>();
  private readonly _syncKey = `jpd-compare-${++views}`;
  private _timer: ReturnType<typeof setTimeout> | null = null;
  private _smoothing = 0;
  private _log = false;

  constructor(private readonly _options: { sources: IRunSource[]; trans?: Trans }) {
    const { sources, trans = english } = _options;
    const { signal } = this._abort;
    const status = el('div', { class: 'jpd-sr', role: 'status', 'aria-live': 'polite' });
    this.node = el('section', { class: 'jpd-run', 'aria-label': trans('Compared runs') });
    this._context = {
      source: sources[0],
      trans,
      signal,
      root: this.node,
      announce: text => setText(status, text)
    };
    this._runs = sources.map(() => null);
    this._curves = sources.map(() => null);
    const controls = el('div', { class: 'jpd-controls' });
    controls.append(
      smoothingControl(this._context, value => {
        this._smoothing = value;
        this._draw();
      }),
      logControl(this._context, on => {
        this._log = on;
        this._draw();
      })
    );
    this.node.append(
      el('div', { class: 'jpd-bar-row' }, this._legend, controls),
      this._notices,
      this._grid,
      status
    );
    followTheme(this.node, () => this._charts.forEach(chart => chart.redraw(true)), signal);
    signal.addEventListener('abort', () => clearTimeout(this._timer ?? undefined));
    this._watching = sources.map((source, i) =>
      source.watch(change => {
        if (change.kind === 'run') {
          this._runs[i] = change.run;
          this._showLegend();
        } else if (change.kind === 'curves' || (change.kind === 'connection' && change.online)) {
          this._soon(i);
        }
      })
    );
    sources.forEach((source, i) => {
      void this._load(source, i);
    });
  }

  dispose(): void {
    this._watching.forEach(watching => watching.dispose());
    this._abort.abort();
    this.node.remove();
  }

  private async _load(source: IRunSource, i: number): Promise<void> {
    try {
      this._runs[i] = await source.run();
      this._showLegend();
      this._soon(i, 0);
    } catch (error) {
      const { trans } = this._context;
      this._notices.appendChild(
        notice('warning', trans('Run %1 cannot be read', source.id), reason(error))
      );
    }
  }

  private _soon(i: number, after = PAUSE_MS): void {
    this._dirty.add(i);
    if (this._timer === null && !this._context.signal.aborted) {
      this._timer = setTimeout(() => void this._fetch(), after);
    }
  }

  private async _fetch(): Promise<void> {
    const due = [...this._dirty];
    this._dirty.clear();
    await Promise.all(
      due.map(async i => {
        // What cannot be read now is read with the next change.
        this._curves[i] = await this._options.sources[i]
          .curves(POINTS)
          .catch(() => this._curves[i]);
      })
    );
    this._timer = null;
    this._draw();
    const [next] = this._dirty;
    if (next !== undefined) {
      this._soon(next);
    }
  }

  private _showLegend(): void {
    const { trans, signal } = this._context;
    if (signal.aborted) {
      return;
    }
    const buttons = this._options.sources.map((source, i) => {
      const run = this._runs[i];
      const known = this._legend.children[i] as HTMLButtonElement | undefined;
      const toggle = known ?? this._toggle(i);
      const state = run ? stateName(run.state, trans).toLowerCase() : '…';
      setText(toggle.lastChild as Node, `${run?.name || source.id} · ${state}`);
      toggle.title = source.id;
      toggle.classList.toggle('jpd-ended', !run || ended(run.state));
      return toggle;
    });
    if (this._legend.childElementCount !== buttons.length) {
      this._legend.replaceChildren(...buttons);
    }
  }

  private _toggle(i: number): HTMLButtonElement {
    const swatch = el('i', { class: 'jpd-swatch' });
    swatch.style.background = `var(${rankVariable(i)})`;
    const toggle = el(
      'button',
      { type: 'button', class: 'jpd-toggle', 'aria-pressed': 'true' },
      swatch,
      el('span')
    );
    toggle.addEventListener(
      'click',
      () => {
        const on = this._hidden.delete(i);
        if (!on) {
          this._hidden.add(i);
        }
        toggle.setAttribute('aria-pressed', String(on));
        this._draw();
      },
      { signal: this._context.signal }
    );
    return toggle;
  }

  private _draw(): void {
    if (this._context.signal.aborted) {
      return;
    }
    const shown = this._curves.map((_, i) => i).filter(i => !this._hidden.has(i));
    for (const curve of merged(this._curves)) {
      let chart = this._charts.get(curve.name);
      if (!chart) {
        const label = (i: number) => this._runs[i]?.name ?? this._options.sources[i].id;
        chart = new Chart(curve, this._context, this._syncKey, label);
        this._charts.set(curve.name, chart);
        this._grid.appendChild(chart.node);
      }
      chart.update(curve, {
        smoothing: this._smoothing,
        log: this._log,
        ranks: new Set(shown),
        band: false,
        raw: shown.length <= 4
      });
    }
  }
}

/** The metrics of all runs; the "ranks" of each are the runs. */
export function merged(all: readonly (ICurves | null)[]): ICurve[] {
  const names = [...new Set(all.flatMap(curves => curves?.curves.map(curve => curve.name) ?? []))];
  return names.map(name => ({
    name,
    band: null,
    ranks: all.flatMap((curves, i) => {
      const curve = curves?.curves.find(candidate => candidate.name === name);
      return curve ? [{ ...mean(curve), rank: i }] : [];
    })
  }));
}

/** The mean over the ranks at each step, of those that have a number there. */
export function mean(curve: ICurve): IRankCurve {
  if (curve.band) {
    return { rank: 0, steps: curve.band.steps, values: curve.band.mean, times: [] };
  }
  if (curve.ranks.length === 1) {
    return curve.ranks[0];
  }
  const sums = new Map<number, { sum: number; count: number }>();
  for (const { steps, values } of curve.ranks) {
    steps.forEach((step, i) => {
      const at = sums.get(step) ?? { sum: 0, count: 0 };
      const value = values[i];
      if (value !== null) {
        at.sum += value;
        at.count += 1;
      }
      sums.set(step, at);
    });
  }
  const steps = [...sums.keys()].sort((a, b) => a - b);
  const values = steps.map(step => {
    const { sum, count } = sums.get(step) ?? { sum: 0, count: 0 };
    return count ? sum / count : null;
  });
  return { rank: 0, steps, values, times: [] };
}
