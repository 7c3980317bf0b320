/** Where the time of a training step goes: a thin bar for each rank, in parts. */
import type { IContext } from './context';
import { el, setText } from './dom';
import { rate } from './format';
import { Rereading } from './rereading';
import type { IRunInfo, IStepProfile, IStepsOfRank } from './source';

const PAUSE_MS = 1000;
/** A run that has measured no step by then will hardly do so. */
const YOUNG_S = 30;
/** Of more ranks there are three rows: the slowest, the median and the fastest. */
const MOST_ROWS = 8;

type Part = 'data' | 'compute' | 'collectives';
const PARTS: Part[] = ['data', 'compute', 'collectives'];

export class StepParts {
  readonly node: HTMLDetailsElement;
  private readonly _now = el('span', { class: 'jpd-resources-now' });
  private readonly _rows = el('div', { class: 'jpd-steps-rows' });
  private readonly _names: Record<Part, string>;
  private _attempt: number | null = null;
  private _run: IRunInfo | null = null;
  private _visible = true;
  private readonly _rereading: Rereading;

  constructor(private readonly _context: IContext) {
    const { trans, signal, source } = _context;
    this._names = {
      data: trans('waiting for data'),
      compute: trans('computing'),
      collectives: trans('waiting in collectives')
    };
    this._rereading = new Rereading(
      () => this._read(),
      signal,
      () => this._visible && source.profile !== undefined
    );
    const legend = PARTS.map(part =>
      el('span', {}, el('i', { 'data-part': part, 'aria-hidden': 'true' }), this._names[part])
    );
    this.node = el(
      'details',
      { class: 'jpd-asides jpd-steps', hidden: true, open: true },
      el('summary', {}, trans('Time of a step'), ' ', this._now),
      el('div', { class: 'jpd-steps-legend jpd-muted' }, ...legend),
      this._rows
    );
  }

  /** How the run stands; another attempt begins with nothing. */
  update(run: IRunInfo): void {
    this._run = run;
    if (this._attempt !== run.attempt) {
      this._attempt = run.attempt;
      if (!this.node.hidden) {
        this._clear();
      }
      this.changed();
    }
  }

  /** Ranks may have recorded more steps. */
  changed(): void {
    this._rereading.changed();
  }

  /** With the first curves the rows get their places, so that later only their content changes. */
  reserve(): void {
    const run = this._run;
    const young = run?.state === 'running' && run.host_time - (run.started ?? 0) < YOUNG_S;
    if (this.node.hidden && young && this._context.source.profile) {
      this.node.hidden = false;
      this._clear();
    }
  }

  private _clear(): void {
    const ranks = this._run?.world_size ?? 0;
    setText(this._now, this._context.trans('not yet measured'));
    this._fill([], ranks > MOST_ROWS ? 3 : ranks);
  }

  /** As many rows as there were, so that one that comes later has its place. */
  private _fill(rows: HTMLElement[], least = this._rows.childElementCount): void {
    const missing = Array.from({ length: Math.max(0, least - rows.length) }, () =>
      el(
        'div',
        { class: 'jpd-progress-row' },
        el('span', { class: 'jpd-ranks' }, '\u00a0'),
        el('div', { class: 'jpd-steps-bar', 'aria-hidden': 'true' })
      )
    );
    this._rows.replaceChildren(...rows, ...missing);
  }

  set visible(visible: boolean) {
    this._visible = visible;
    this._rereading.goOn();
  }

  private async _read(): Promise<number> {
    try {
      const profile = await this._context.source.profile?.();
      if (profile && !this._context.signal.aborted) {
        this._draw(profile);
      }
    } catch {
      // Asked again with the next news; nobody misses it meanwhile.
    }
    return PAUSE_MS;
  }

  private _draw(profile: IStepProfile): void {
    const { ranks } = profile;
    if (!ranks.length && this._run?.state === 'running') {
      return;
    }
    this.node.hidden = !ranks.length;
    const rates = ranks.flatMap(one => (one.samples_per_s === null ? [] : [one.samples_per_s]));
    const all = ranks.length > 0 && rates.length === ranks.length && ranks[0].place === null;
    const sum = rate(rates.reduce((a, b) => a + b, 0));
    setText(this._now, all ? this._context.trans('%1 samples/s', sum) : '');
    const longest = Math.max(...ranks.map(one => one.step_s));
    this._fill(ranks.map(one => this._row(one, longest, one.rank === profile.straggler)));
  }

  private _row(one: IStepsOfRank, longest: number, slow: boolean): HTMLElement {
    const { trans } = this._context;
    const seconds = { data: one.data_s, compute: one.compute_s, collectives: one.collectives_s };
    const parts = PARTS.flatMap(part => {
      const share = (seconds[part] ?? 0) / longest;
      const bar = el('i', { 'data-part': part });
      bar.style.width = `${(100 * share).toFixed(1)}%`;
      return share > 0 ? [bar] : [];
    });
    const shares = PARTS.flatMap(part => {
      const share = seconds[part];
      return share === null ? [] : [`${this._names[part]} ${percent(share / one.step_s)}`];
    });
    const places = {
      slowest: trans('slowest'),
      median: trans('median'),
      fastest: trans('fastest')
    };
    const place = one.place ? places[one.place] : '';
    const text = [place, time(one.step_s), ...shares].filter(Boolean).join(' · ');
    return el(
      'div',
      { class: 'jpd-progress-row', 'data-slow': slow },
      el('span', { class: 'jpd-ranks' }, String(one.rank)),
      el('div', { class: 'jpd-steps-bar', 'aria-hidden': 'true' }, ...parts),
      el('span', { class: 'jpd-muted', title: text }, text)
    );
  }
}

function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}

/** A step's seconds: `1.25 s`, `48 ms`, `0.31 ms`. */
function time(seconds: number): string {
  const [value, unit] = seconds < 0.0995 ? [1000 * seconds, 'ms'] : [seconds, 's'];
  return `${value < 10 ? Number(value.toPrecision(2)) : value.toFixed(0)} ${unit}`;
}
