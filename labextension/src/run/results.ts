/** What the ranks returned: numbers and dicts in a table by rank, else equal values in one row. */
import type { IContext } from './context';
import { el } from './dom';
import { bytes, ranges } from './format';
import { resultTable, tabled } from './resulttable';
import type { IResult } from './source';

/** Above this an array's own digits say nothing. */
const SHORT = 300;

export function resultsNode(
  results: readonly IResult[],
  worldSize: number,
  context: IContext
): HTMLElement {
  const { trans } = context;
  const inTable = tabled(results);
  return el(
    'section',
    { class: 'jpd-results', 'aria-label': trans('Results') },
    el('h4', { class: 'jpd-title' }, trans('Results')),
    inTable.length ? resultTable(inTable, context) : null,
    el(
      'div',
      { class: 'jpd-result-rows' },
      ...results
        .filter(result => !inTable.includes(result))
        .map(result =>
          el(
            'div',
            { class: 'jpd-result' },
            worldSize > 1
              ? el('span', { class: 'jpd-ranks', title: size(result) }, `[${ranges(result.ranks)}]`)
              : null,
            el(
              'pre',
              { class: result.error ? 'jpd-pre jpd-result-error' : 'jpd-pre', tabindex: 0 },
              text(result)
            )
          )
        )
    )
  );
}

function text({ array, error, repr }: IResult): string {
  const told = array && repr.length > SHORT ? array : array ? `${array}\n${repr}` : repr;
  return error ? `${told}\n${error}`.trim() : told;
}

function size(result: IResult): string | null {
  return result.bytes ? bytes(result.bytes) : null;
}

/** Whether results say anything: a cell that ends with no value gives None on every rank. */
export function haveContent(results: readonly IResult[]): boolean {
  return results.some(({ repr, error }) => repr !== 'None' || error !== null);
}
