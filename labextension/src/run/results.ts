/** What the ranks returned, equal values in one row. */
import type { IContext } from './context';
import { el } from './dom';
import { bytes, ranges } from './format';
import type { IResult } from './source';

export function resultsNode(results: IResult[], worldSize: number, context: IContext): HTMLElement {
  const { trans } = context;
  return el(
    'section',
    { class: 'jpd-results', 'aria-label': trans('Results') },
    el('h4', { class: 'jpd-title' }, trans('Results')),
    el(
      'div',
      { class: 'jpd-result-rows' },
      ...results.map(result =>
        el(
          'div',
          { class: 'jpd-result' },
          worldSize > 1
            ? el('span', { class: 'jpd-ranks', title: size(result) }, `[${ranges(result.ranks)}]`)
            : null,
          el(
            'pre',
            { class: result.error ? 'jpd-pre jpd-result-error' : 'jpd-pre', tabindex: 0 },
            result.error ? `${result.repr}\n${result.error}`.trim() : result.repr
          )
        )
      )
    )
  );
}

function size(result: IResult): string | null {
  return result.bytes ? bytes(result.bytes) : null;
}
