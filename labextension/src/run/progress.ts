/** Each rank's progress as a row with a bar. */
import type { IContext } from './context';
import { el, setText } from './dom';
import { ended, type IRunInfo } from './source';
import { progressText } from './strip';
import { rankVariable } from './theme';

/** Above this many ranks the rows are folded at first. */
const OPEN = 8;
const MOST = 256;

export class ProgressRows {
  readonly node: HTMLDetailsElement;
  private readonly _rows = el('div', { class: 'jpd-progress-rows', tabindex: 0, role: 'group' });
  private readonly _known = new Map<number, { fill: HTMLElement; text: HTMLElement }>();
  private readonly _more = el('div', { class: 'jpd-muted', hidden: true });
  private _decided = false;

  constructor(private readonly _context: IContext) {
    const { trans } = _context;
    this._rows.setAttribute('aria-label', trans('Progress of each rank'));
    this.node = el(
      'details',
      { class: 'jpd-asides', hidden: true },
      el('summary', {}, trans('Progress of each rank')),
      this._rows,
      this._more
    );
  }

  update(run: IRunInfo): void {
    const all = run.progress_by_rank;
    // One rank's progress is in the header.
    this.node.hidden = run.world_size < 2 || !all.length;
    if (!this._decided && all.length) {
      this._decided = true;
      this.node.open = run.world_size <= OPEN && !ended(run.state);
    }
    this._more.hidden = all.length <= MOST;
    setText(this._more, this._context.trans('and %1 more ranks', all.length - MOST));
    for (const progress of all.slice(0, MOST)) {
      let row = this._known.get(progress.rank);
      if (!row) {
        row = { fill: el('i'), text: el('span', { class: 'jpd-muted' }) };
        row.fill.style.background = `var(${rankVariable(progress.rank)})`;
        this._known.set(progress.rank, row);
        this._rows.appendChild(
          el(
            'div',
            { class: 'jpd-progress-row' },
            el('span', { class: 'jpd-ranks' }, String(progress.rank)),
            el('div', { class: 'jpd-bar', 'aria-hidden': 'true' }, row.fill),
            row.text
          )
        );
      }
      const part = progress.total ? Math.min(1, progress.n / progress.total) : 0;
      row.fill.style.width = `${100 * part}%`;
      setText(row.text, progressText(progress, this._context.trans));
    }
  }
}
