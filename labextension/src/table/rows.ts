/** The rows of the table of runs: those of runs, those of groups, and what stands in the place of none. */
import { runState } from '../run/context';
import { button, el } from '../run/dom';
import type { IRunSummary } from '../run/source';
import type { Trans } from '../run/trans';
import { ofGroup, type IColumn, type IGroup } from './columns';

export interface IRowActions {
  trans: Trans;
  signal: AbortSignal;
  isSelected: (id: string) => boolean;
  select: (id: string) => void;
  open: (id: string) => void;
  rename: (run: IRunSummary) => void;
  isOpen: (group: IGroup) => boolean;
  toggle: (group: IGroup) => void;
}

/** `now`: the run as its clock stands. */
export function runRow(
  run: IRunSummary,
  now: IRunSummary,
  columns: readonly IColumn[],
  actions: IRowActions
): HTMLElement {
  const { trans, signal } = actions;
  const check = el('input', { type: 'checkbox', 'aria-label': trans('Select %1', run.name) });
  check.checked = actions.isSelected(run.id);
  check.addEventListener('change', () => actions.select(run.id), { signal });
  const cells = columns.map(column => {
    const text = column.text(now);
    if (column.id === 'name') {
      const link = button(
        { label: text, text, class: 'jpd-runs-name' },
        () => actions.open(run.id),
        signal
      );
      const pen = button(
        { label: trans('Rename %1', text), icon: 'pen', class: 'jpd-runs-pen' },
        () => actions.rename(run),
        signal
      );
      return el('td', { title: [text, run.note].filter(Boolean).join('\n') }, link, pen);
    }
    const shown = column.id === 'state' ? runState(run, trans) : text;
    return el(
      'td',
      {
        'data-numeric': column.numeric,
        'data-state': column.id === 'state' ? run.state : null,
        title: shown.length > 12 ? shown : null
      },
      shown
    );
  });
  return el('tr', { 'data-id': run.id }, el('td', { class: 'jpd-runs-check' }, check), ...cells);
}

export function groupRow(
  group: IGroup,
  columns: readonly IColumn[],
  { trans, signal, isOpen, toggle }: IRowActions
): HTMLElement {
  const text = `${group.key || '–'} (${group.runs.length})`;
  const head = button({ label: text, text }, () => toggle(group), signal);
  head.setAttribute('aria-expanded', String(isOpen(group)));
  const cells = columns.map(column =>
    column.id === 'name'
      ? el('th', { scope: 'rowgroup', title: group.key }, head)
      : el('td', { 'data-numeric': column.numeric }, ofGroup(column, group.runs, trans))
  );
  return el('tr', { class: 'jpd-runs-group', 'data-id': `group ${group.key}` }, el('td'), ...cells);
}

/** `filtered`: there are runs, and none matches. */
export function emptyNode(
  filtered: boolean,
  { trans, signal }: Pick<IRowActions, 'trans' | 'signal'>,
  showAll: () => void
): HTMLElement {
  return filtered
    ? el(
        'div',
        { class: 'jpd-runs-empty jpd-muted' },
        el('p', {}, trans('No run matches this filter.')),
        button(
          { label: trans('Show all runs'), text: trans('Show all runs') },
          () => showAll(),
          signal
        )
      )
    : el('div', { class: 'jpd-runs-empty jpd-muted' }, el('p', {}, trans('No runs yet.')));
}
