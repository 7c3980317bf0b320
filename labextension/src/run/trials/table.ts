/** The trials of a tuning run in a table that is sorted by any column and filtered by a text. */
import type { ITrialInfo, ITuning } from '../../answers/runs';
import type { IContext } from '../context';
import { button, el, setText } from '../dom';
import { duration, value as shownNumber } from '../format';
import { ownValue } from '../ownvalue';
import { shown } from './scale';

/** So many rows are shown at once: nobody reads more, and a filter finds the others. */
const MOST_ROWS = 200;

interface IColumn {
  name: string;
  /** What rows are sorted by: a number, a text, or null, which goes last either way. */
  key: (trial: ITrialInfo) => number | string | null;
  text: (trial: ITrialInfo) => string;
}

export class TrialTable {
  readonly node: HTMLElement;
  private readonly _head = el('tr');
  private readonly _body = el('tbody');
  private readonly _more = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _filter: HTMLInputElement;
  private _tuning: ITuning | null = null;
  private _columns: IColumn[] = [];
  private _names = '';
  private _by = -1;
  private _down = false;

  constructor(
    private readonly _context: IContext,
    private readonly _open?: (id: string) => void
  ) {
    const { trans, signal } = _context;
    this._filter = el('input', {
      type: 'search',
      class: 'jpd-input',
      placeholder: trans('Filter trials'),
      'aria-label': trans('Filter trials')
    });
    this._filter.addEventListener('input', () => this._rows(), { signal });
    this.node = el(
      'div',
      { class: 'jpd-trial-table' },
      this._filter,
      el(
        'div',
        { class: 'jpd-scroll', tabindex: 0, role: 'region', 'aria-label': trans('Trials') },
        el('table', { class: 'jpd-table' }, el('thead', {}, this._head), this._body)
      ),
      this._more
    );
  }

  update(tuning: ITuning): void {
    this._tuning = tuning;
    const names = JSON.stringify([
      tuning.metric,
      tuning.parameters.map(one => one.name),
      continues(tuning)
    ]);
    if (names !== this._names) {
      this._names = names;
      this._columns = columns(tuning, this._context);
      if (this._by < 0) {
        // The best first.
        this._by = 2;
        this._down = tuning.goal === 'max';
      }
      this._heads();
    }
    this._rows();
  }

  private _heads(): void {
    const { signal } = this._context;
    const cells = this._columns.map((column, index) => {
      const node = button(
        { label: column.name, text: column.name },
        () => {
          this._down = this._by === index ? !this._down : false;
          this._by = index;
          this._mark();
          this._rows();
        },
        signal
      );
      return el('th', { scope: 'col' }, node);
    });
    this._head.replaceChildren(...cells);
    this._mark();
  }

  private _mark(): void {
    [...this._head.children].forEach((cell, index) => {
      const order = index !== this._by ? 'none' : this._down ? 'descending' : 'ascending';
      cell.setAttribute('aria-sort', order);
    });
  }

  private _rows(): void {
    const tuning = this._tuning;
    if (!tuning) {
      return;
    }
    const { trans } = this._context;
    const words = this._filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = tuning.trials.filter(trial => {
      const line = this._columns.map(column => `${column.name}=${column.text(trial)}`).join(' ');
      return words.every(word => line.toLowerCase().includes(word));
    });
    const column = this._columns[this._by];
    const ordered = fitting.sort((a, b) => compared(column.key(a), column.key(b), this._down));
    const rows = ordered.slice(0, MOST_ROWS).map(trial => this._row(trial, tuning));
    this._body.replaceChildren(...rows);
    const left = ordered.length - rows.length;
    this._more.hidden = left <= 0;
    setText(this._more, trans('%1 more trials match', left));
  }

  private _row(trial: ITrialInfo, tuning: ITuning): HTMLElement {
    const { trans, signal } = this._context;
    const open = this._open;
    const cells = this._columns.map((column, index) => {
      const text = column.text(trial);
      const inner =
        index === 0 && open
          ? button(
              { label: trans('Open trial %1', trial.number), text },
              () => open(trial.id),
              signal
            )
          : text;
      return el('td', index === 1 ? { 'data-state': trial.state } : {}, inner);
    });
    return el(
      'tr',
      { class: trial.number === tuning.best ? 'jpd-best' : null, title: trial.reason },
      ...cells
    );
  }
}

function continues(tuning: ITuning): boolean {
  return tuning.trials.some(one => one.source);
}

function columns(tuning: ITuning, context: IContext): IColumn[] {
  const { trans } = context;
  return [
    { name: trans('Trial'), key: one => one.number, text: one => String(one.number) },
    { name: trans('State'), key: one => one.state, text: one => one.state },
    {
      name: tuning.metric,
      key: one => one.value,
      text: one => (one.value === null ? '' : shownNumber(one.value))
    },
    ...tuning.parameters.map(({ name }): IColumn => ({
      name,
      key: one => {
        const value = ownValue(one.parameters, name);
        return typeof value === 'number' ? value : value == null ? null : String(value);
      },
      text: one => shown(ownValue(one.parameters, name))
    })),
    {
      name: trans('Duration'),
      key: one => (one.ended === null ? null : one.ended - one.started),
      text: one => (one.ended === null ? '' : duration(one.ended - one.started))
    },
    ...(continues(tuning)
      ? [
          {
            name: trans('Continues'),
            key: ({ source }: ITrialInfo) => source?.trial ?? null,
            text: ({ source }: ITrialInfo) =>
              source ? trans('%1 after %2 values', source.trial, source.values) : ''
          }
        ]
      : [])
  ];
}

function compared(a: number | string | null, b: number | string | null, down: boolean): number {
  if (a === null || b === null) {
    return a === b ? 0 : a === null ? 1 : -1;
  }
  const order =
    typeof a === 'number' && typeof b === 'number'
      ? a - b
      : String(a).localeCompare(String(b), undefined, { numeric: true });
  return down ? -order : order;
}
