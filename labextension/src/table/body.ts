/** The rows of the table of runs. Of hundreds only those in sight are in the page. */
import { el } from '../run/dom';
import type { IRunSummary } from '../run/source';
import * as virtual from '../run/rowwindow';
import type { Clock } from './clock';
import type { IColumn, IGroup } from './columns';
import { groupRow, runRow, type IRowActions } from './rows';

const ROW_PX = 28;
const SPARE_ROWS = 12;

export type Row = IRunSummary | IGroup;

export class TableBody {
  readonly node = el('tbody');
  /** A name is typed in a row: nothing is drawn meanwhile. */
  typing = false;
  private _rows: readonly Row[] = [];
  private _columns: readonly IColumn[] = [];
  private _drawn = '';

  constructor(
    private readonly _clock: Clock,
    private readonly _actions: IRowActions
  ) {}

  show(rows: readonly Row[], columns: readonly IColumn[]): void {
    this._rows = rows;
    this._columns = columns;
    this.redraw();
  }

  redraw(): void {
    this._drawn = '';
    this.draw();
  }

  /** Draw what is in sight now, if that is not drawn. */
  draw(): void {
    const { scrollTop = 0, clientHeight = 0 } = this.node.closest('.jpd-runs-scroll') ?? {};
    const rows = this._rows.length;
    const geometry = { rows, rowHeight: ROW_PX, viewport: clientHeight || 600 };
    const { first, end } = virtual.window(scrollTop, geometry, SPARE_ROWS);
    const drawn = `${first}-${end}`;
    if (drawn === this._drawn || this.typing) {
      return;
    }
    this._drawn = drawn;
    const had = this.node.contains(document.activeElement) ? document.activeElement : null;
    const focused = had?.closest('tr')?.dataset.id;
    const place = had ? controlsOf(had.closest('tr')).indexOf(had as HTMLElement) : -1;
    const room = (rows: number) => {
      const row = el('tr', { 'aria-hidden': 'true', class: 'jpd-runs-room' }, el('td'));
      row.style.height = `${rows * ROW_PX}px`;
      return row;
    };
    const shown = this._rows
      .slice(first, end)
      .map(row =>
        'runs' in row
          ? groupRow(row, this._columns, this._actions)
          : runRow(row, this._clock.now(row), this._columns, this._actions)
      );
    this.node.replaceChildren(room(first), ...shown, room(rows - end));
    if (focused) {
      controlsOf(this.rowOf(focused))[place]?.focus({ preventScroll: true });
    }
  }

  rowOf(id: string): HTMLElement | undefined {
    return [...this.node.rows].find(row => row.dataset.id === id);
  }

  focus(id: string): void {
    this.rowOf(id)?.querySelector<HTMLElement>('.jpd-button')?.focus({ preventScroll: true });
  }
}

function controlsOf(row: Element | null | undefined): HTMLElement[] {
  return [...(row?.querySelectorAll<HTMLElement>('button, input') ?? [])];
}
