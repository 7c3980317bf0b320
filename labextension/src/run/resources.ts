/** What each rank takes of its host, folded to a line: CPU, memory, GPUs, network, and its last output. */
import type { IContext } from './context';
import { el, setText, svg } from './dom';
import { bytes, duration } from './format';
import { Rereading } from './rereading';
import { ended, type IRunInfo, type IUsage } from './source';

const MOST = 256;
const POINTS = 120;
const ALL_POINTS = 4000;
const PAUSE_MS = 1000;
const WIDTH = 72;
const HEIGHT = 16;
/** A rank that has written something so recently is not worth a word. */
const RECENT_S = 5;

type Column = 'cpu' | 'memory' | 'gpu' | 'gpu_memory' | 'net_in' | 'net_out';
const COLUMNS: Column[] = ['cpu', 'memory', 'gpu', 'gpu_memory', 'net_in', 'net_out'];
/** What the top of a column's sparklines stands for at least. */
const LEAST: Partial<Record<Column, number>> = { cpu: 100, gpu: 100 };

interface ICell {
  line: SVGPolylineElement;
  text: HTMLElement;
}

interface IRow {
  cells: Map<Column, ICell>;
  sign: HTMLElement;
}

export class Resources {
  readonly node: HTMLDetailsElement;
  private readonly _now = el('span', { class: 'jpd-resources-now' });
  private readonly _box = el('div', { class: 'jpd-resources-box', tabindex: 0, role: 'group' });
  private readonly _more = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _rows = new Map<number, IRow>();
  private _columns = '';
  private _usage: IUsage | null = null;
  private _received = 0;
  private _run: IRunInfo | null = null;
  private _visible = true;
  private readonly _rereading: Rereading;

  constructor(private readonly _context: IContext) {
    const { trans, signal } = _context;
    this._rereading = new Rereading(
      () => this._read(),
      signal,
      () => this._visible && this._context.source.usage !== undefined
    );
    this._box.setAttribute('aria-label', trans('Resources of each rank'));
    this.node = el(
      'details',
      { class: 'jpd-asides jpd-resources', hidden: true },
      el('summary', {}, trans('Resources'), ' ', this._now),
      this._box,
      this._more
    );
    this.node.addEventListener('toggle', () => this.changed(), { signal });
  }

  /** How the run stands; another attempt begins with nothing. */
  update(run: IRunInfo): void {
    const before = this._run;
    this._run = run;
    if (!ended(run.state) && this._context.source.usage && !run.tuning) {
      this.node.hidden = false; // its line has its place before the first measurement
    }
    const over = before && ended(run.state) && !ended(before.state);
    if (!before || before.attempt !== run.attempt || over) {
      this.changed();
    }
  }

  /** There is more to be asked for. */
  changed(): void {
    this._rereading.changed();
  }

  set visible(visible: boolean) {
    this._visible = visible;
    this._rereading.goOn();
  }

  /** How long ago a rank printed or logged, where that is long enough to be told. */
  quiet(rank: number): string | null {
    const last = this._usage?.ranks.find(one => one.rank === rank)?.last_sign;
    const info = this._run?.ranks[rank];
    if (!this._usage || typeof last !== 'number' || info?.state !== 'running') {
      return null;
    }
    const passed = (performance.now() - this._received) / 1000;
    const ago = this._usage.host_time + passed - last;
    return ago < RECENT_S ? null : this._context.trans('last output %1 ago', duration(ago));
  }

  private async _read(): Promise<number> {
    const { source } = this._context;
    const began = performance.now();
    const size = Math.max(1, this._run?.world_size ?? 1);
    const points = this.node.open
      ? Math.max(20, Math.min(POINTS, Math.floor(ALL_POINTS / size)))
      : 1;
    try {
      const usage = await source.usage?.(points);
      if (usage) {
        this._usage = usage;
        this._received = performance.now();
        this._draw();
      }
    } catch {
      // Asked again with the next news; nobody misses it meanwhile.
    }
    const spent = performance.now() - began;
    return this._usage?.ranks.length ? Math.max(PAUSE_MS, 10 * spent) : 0;
  }

  private _draw(): void {
    const usage = this._usage;
    if (!usage || this._context.signal.aborted) {
      return;
    }
    const told = usage.ranks.filter(rank => rank.times.length);
    this.node.hidden &&= !told.length; // what is below stays where it is
    const over = this._run !== null && ended(this._run.state);
    // What ranks take is not known after their end.
    const none = told.length
      ? ''
      : this._context.trans('the run ended before the first measurement');
    setText(this._now, over ? none : this._summary(usage));
    if (!this.node.open || !told.length) {
      return;
    }
    const known = new Set(told.flatMap(rank => rank.series.map(series => series.name)));
    const columns = COLUMNS.filter(column => known.has(column));
    this._makeTable(columns, told.slice(0, MOST));
    setText(this._more, this._context.trans('and %1 more ranks', told.length - MOST));
    this._more.hidden = told.length <= MOST;
    const tops = new Map(columns.map(column => [column, top(usage, column)]));
    for (const rank of told.slice(0, MOST)) {
      const row = this._rows.get(rank.rank);
      for (const [column, cell] of row?.cells ?? []) {
        const values = rank.series.find(series => series.name === column)?.values ?? [];
        const most = Math.max(...values.map(value => value ?? 0));
        setText(
          cell.text,
          over ? this._context.trans('max %1', shown(column, most)) : shown(column, values.at(-1))
        );
        cell.line.setAttribute('points', polyline(values, tops.get(column) ?? 1));
      }
      if (row) {
        setText(row.sign, this.quiet(rank.rank) ?? '');
      }
    }
  }

  /** All ranks together as they are now; of GPUs the mean. */
  private _summary(usage: IUsage): string {
    const { trans } = this._context;
    const sum = (column: Column): { sum: number; mean: number } | null => {
      const values = usage.ranks.flatMap(rank => {
        const last = rank.series.find(series => series.name === column)?.values.at(-1);
        return typeof last === 'number' ? [last] : [];
      });
      const all = values.reduce((a, b) => a + b, 0);
      return values.length ? { sum: all, mean: all / values.length } : null;
    };
    const [cpu, memory, gpu, gpuMemory] = (['cpu', 'memory', 'gpu', 'gpu_memory'] as const).map(
      sum
    );
    const parts = [
      cpu ? trans('CPU %1', shown('cpu', cpu.sum)) : '',
      memory ? trans('memory %1', bytes(memory.sum)) : '',
      gpu ? trans('GPU %1', shown('gpu', gpu.mean)) : '',
      gpuMemory ? trans('GPU memory %1', bytes(gpuMemory.sum)) : ''
    ];
    return parts.filter(Boolean).join(' · ');
  }

  private _makeTable(columns: Column[], ranks: IUsage['ranks']): void {
    const key = `${columns.join()} ${ranks.map(rank => rank.rank).join()}`;
    if (key === this._columns) {
      return;
    }
    this._columns = key;
    this._rows.clear();
    const { trans } = this._context;
    const names: Record<Column, string> = {
      cpu: trans('CPU'),
      memory: trans('Memory'),
      gpu: trans('GPU'),
      gpu_memory: trans('GPU memory'),
      net_in: trans('Host receives'),
      net_out: trans('Host sends')
    };
    const head = el(
      'tr',
      {},
      el('th', { scope: 'col' }, trans('Rank')),
      ...columns.map(column => el('th', { scope: 'col' }, names[column])),
      el('th', { scope: 'col' }, el('span', { class: 'jpd-sr' }, trans('Last output')))
    );
    const rows = ranks.map(({ rank }) => this._makeRow(rank, columns));
    this._box.replaceChildren(
      el('table', { class: 'jpd-resources-table' }, el('thead', {}, head), el('tbody', {}, ...rows))
    );
  }

  private _makeRow(rank: number, columns: Column[]): HTMLElement {
    const cells = new Map<Column, ICell>();
    const nodes = columns.map(column => {
      const { drawing, line } = sparkline();
      const text = el('span', { class: 'jpd-resources-value' });
      cells.set(column, { line, text });
      return el('td', {}, drawing, text);
    });
    const sign = el('td', { class: 'jpd-muted' });
    this._rows.set(rank, { cells, sign });
    return el(
      'tr',
      {},
      el('th', { scope: 'row', class: 'jpd-ranks' }, String(rank)),
      ...nodes,
      sign
    );
  }
}

function sparkline(): { drawing: SVGSVGElement; line: SVGPolylineElement } {
  const line = svg('polyline', {});
  const box = {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: 'jpd-sparkline',
    'aria-hidden': 'true',
    preserveAspectRatio: 'none'
  };
  return { drawing: svg('svg', box, line), line };
}

/** The points of a line over the whole width, which ends with the newest value. */
export function polyline(values: readonly (number | null)[], most: number): string {
  const step = values.length > 1 ? WIDTH / (values.length - 1) : 0;
  return values
    .flatMap((value, i) => {
      const y = HEIGHT - 1 - ((value ?? 0) / (most || 1)) * (HEIGHT - 2);
      return value === null ? [] : [`${(i * step).toFixed(1)},${y.toFixed(1)}`];
    })
    .join(' ');
}

/** One scale for all ranks, so that they can be compared. */
function top(usage: IUsage, column: Column): number {
  let most = LEAST[column] ?? 0;
  for (const rank of usage.ranks) {
    for (const value of rank.series.find(series => series.name === column)?.values ?? []) {
      most = Math.max(most, value ?? 0);
    }
  }
  return most || 1;
}

function shown(column: Column, value: number | null | undefined): string {
  if (value === null || value === undefined) {
    return '–';
  }
  switch (column) {
    case 'cpu':
    case 'gpu':
      return `${value.toFixed(0)} %`;
    case 'memory':
    case 'gpu_memory':
      return bytes(Math.round(value));
    default:
      return `${bytes(Math.round(value))}/s`;
  }
}
