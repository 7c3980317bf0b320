/** Numbers and texts that ranks returned: a row for each, sorted by any column, and mean, least and largest. */
import type { IContext } from './context';
import { button, el } from './dom';
import { ranges, value as shown } from './format';
import type { ICell, IResult } from './source';

const MOST_ROWS = 256;
const MOST_COLUMNS = 32;

interface IRow {
  ranks: number[];
  cells: Map<string, ICell>;
}

/** The results that stand in a table, where one says more than their reprs: dicts, or many numbers. */
export function tabled(results: readonly IResult[]): readonly IResult[] {
  const found = results.filter(one => !one.error && one.cells?.length);
  const named = found.some(one => one.cells?.some(({ name }) => !/^\d*$/.test(name)));
  return found.length > 1 && (named || found.length > 4) ? found : [];
}

export function resultTable(results: readonly IResult[], context: IContext): HTMLElement {
  const { trans, signal } = context;
  const rows: IRow[] = results.map(({ ranks, cells = [] }) => ({
    ranks,
    cells: new Map(cells.map(cell => [cell.name, cell]))
  }));
  const names = [...new Set(rows.flatMap(row => [...row.cells.keys()]))].slice(0, MOST_COLUMNS);
  const body = el('tbody');
  const heads = ['', ...names].map((name, column) => {
    const text = column ? name || trans('Result') : trans('Rank');
    const sort = button({ label: text, text }, () => by(column), signal);
    return el('th', { scope: 'col', 'aria-sort': 'none' }, sort);
  });
  const nodes = rows.map(row =>
    el(
      'tr',
      {},
      el('td', { class: 'jpd-ranks' }, ranges(row.ranks)),
      ...names.map(name => cellNode(row.cells.get(name)))
    )
  );
  const by = (column: number) => {
    const down = heads[column].getAttribute('aria-sort') === 'ascending';
    heads.forEach((head, i) =>
      head.setAttribute('aria-sort', i !== column ? 'none' : down ? 'descending' : 'ascending')
    );
    const name = names[column - 1];
    const key = (row: IRow) => (column ? row.cells.get(name) : { number: row.ranks[0], text: '' });
    const order = rows.map((_, i) => i).sort((a, b) => compared(key(rows[a]), key(rows[b]), down));
    body.replaceChildren(...order.slice(0, MOST_ROWS).map(i => nodes[i]));
  };
  by(0);
  const left = rows.length - MOST_ROWS;
  return el(
    'div',
    { class: 'jpd-result-table' },
    el(
      'div',
      { class: 'jpd-scroll', tabindex: 0, role: 'region', 'aria-label': trans('Results by rank') },
      el(
        'table',
        { class: 'jpd-table' },
        el('thead', {}, el('tr', {}, ...heads)),
        body,
        el('tfoot', {}, ...foot(rows, names, context))
      )
    ),
    left > 0 ? el('div', { class: 'jpd-muted' }, trans('and %1 more ranks', left)) : null
  );
}

function cellNode(cell: ICell | undefined): HTMLElement {
  if (!cell) {
    return el('td');
  }
  const { number, text } = cell;
  const finite = typeof number === 'number';
  return el(
    'td',
    { class: number === undefined ? null : 'jpd-number', title: finite ? String(number) : null },
    finite ? shown(number, 6) : text
  );
}

function foot(rows: readonly IRow[], names: readonly string[], { trans }: IContext): HTMLElement[] {
  const columns = names.map(name => numbers(rows, name));
  if (!columns.some(column => column.length)) {
    return [];
  }
  const lines: [string, (column: number[]) => number][] = [
    [trans('mean'), column => column.reduce((sum, one) => sum + one / column.length, 0)],
    [trans('min'), column => Math.min(...column.filter(Number.isFinite))],
    [trans('max'), column => Math.max(...column.filter(Number.isFinite))]
  ];
  return lines.map(([name, of]) =>
    el(
      'tr',
      {},
      el('th', { scope: 'row' }, name),
      ...columns.map(column => {
        const found = column.length ? of(column) : null;
        const text = found === null ? '' : Number.isNaN(found) ? 'nan' : shown(found, 6);
        return el('td', { class: 'jpd-number' }, text);
      })
    )
  );
}

/** A column's values, each as often as ranks have it; none where one of them is no number. */
function numbers(rows: readonly IRow[], name: string): number[] {
  const found: number[] = [];
  for (const { ranks, cells } of rows) {
    const cell = cells.get(name);
    if (cell && cell.number === undefined) {
      return [];
    }
    for (let i = 0; cell && i < ranks.length; i++) {
      found.push(cell.number ?? NaN);
    }
  }
  return found;
}

/** What is missing and what is not finite goes last either way. */
function compared(
  a: Pick<ICell, 'number' | 'text'> | undefined,
  b: Pick<ICell, 'number' | 'text'> | undefined,
  down: boolean
): number {
  const [x, y] = [a?.number ?? a?.text, b?.number ?? b?.text];
  if (x === undefined || y === undefined || typeof x !== typeof y) {
    return Number(typeof x !== 'number') - Number(typeof y !== 'number');
  }
  const order =
    typeof x === 'number' && typeof y === 'number'
      ? x - y
      : String(x).localeCompare(String(y), undefined, { numeric: true });
  return down ? -order : order;
}
