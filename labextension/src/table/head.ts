/** The head of the table of runs: names to sort by, and how wide each column is. */
import { button, el, icon } from '../run/dom';
import type { IRunSummary } from '../run/source';
import type { Trans } from '../run/trans';
import type { IColumn } from './columns';

const CHARACTER_PX = 7.2;
const CHECK_PX = 28;
const WIDEST_PX = 260;

export class TableHead {
  readonly cols = el('colgroup');
  readonly row = el('tr');
  private readonly _all: HTMLInputElement;

  constructor(
    private readonly _trans: Trans,
    private readonly _signal: AbortSignal,
    private readonly _sort: (column: IColumn) => void,
    chooseAll: (on: boolean) => void
  ) {
    this._all = el('input', { type: 'checkbox', 'aria-label': _trans('Select all runs') });
    this._all.addEventListener('change', () => chooseAll(this._all.checked), { signal: _signal });
  }

  set allChosen(all: boolean) {
    this._all.checked = all;
  }

  update(
    columns: readonly IColumn[],
    runs: readonly IRunSummary[],
    sort: { sort: string; down: boolean }
  ): void {
    const focused = this.row.contains(document.activeElement)
      ? document.activeElement?.closest('th')?.dataset.id
      : undefined;
    const cells = columns.map(column => this._cell(column, sort));
    this.row.replaceChildren(
      el('th', { scope: 'col', class: 'jpd-runs-check' }, this._all),
      ...cells
    );
    cells
      .find(cell => focused && cell.dataset.id === focused)
      ?.querySelector('button')
      ?.focus();
    const widths = columns.map(column => widthOf(column, runs));
    this.cols.replaceChildren(
      ...[CHECK_PX, ...widths].map(width => {
        const col = el('col');
        col.style.width = `${width}px`;
        return col;
      })
    );
    const table = this.row.closest('table');
    if (table) {
      table.style.width = `${widths.reduce((sum, width) => sum + width, CHECK_PX)}px`;
    }
  }

  private _cell(column: IColumn, { sort, down }: { sort: string; down: boolean }): HTMLElement {
    const by = sort === column.id;
    const sorter = button(
      { label: column.label, text: column.label },
      () => this._sort(column),
      this._signal
    );
    return el(
      'th',
      {
        scope: 'col',
        'aria-sort': !by ? 'none' : down ? 'descending' : 'ascending',
        'data-id': column.id,
        'data-kind': column.kind,
        'data-numeric': column.numeric,
        title:
          column.kind === 'metric'
            ? this._trans('%1: last value, mean of ranks', column.label)
            : column.kind === 'extreme'
              ? this._trans('%1 of all steps and ranks', column.label)
              : column.label
      },
      sorter,
      by ? icon(down ? 'down' : 'up') : null
    );
  }
}

/** By the longest text, so that nothing moves while rows come and go. */
function widthOf(column: IColumn, runs: readonly IRunSummary[]): number {
  const longest = runs.reduce(
    (most, run) => Math.max(most, column.text(run).length),
    column.label.length + 2
  );
  const least = column.id === 'name' ? 160 : 60;
  return Math.round(Math.min(WIDEST_PX, Math.max(least, 18 + CHARACTER_PX * longest)));
}
