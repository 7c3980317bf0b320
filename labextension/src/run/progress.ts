/** Each rank's progress as a row with a bar, and the bars within it below. */
import type { IContext } from './context';
import { el, setText } from './dom';
import { JointGrowth } from './jointgrowth';
import { progressText } from './progresstext';
import { ended, type IProgress, type IRankProgress, type IRunInfo } from './source';
import { rankVariable } from './theme';

/** Above this many ranks the rows are folded at first. */
const OPEN = 8;
const MOST = 256;
/** The header has a bar already. So the rows can wait for lines or metrics. */
const WAIT_MS = 2000;

export class ProgressRows {
  readonly node: HTMLDetailsElement;
  private readonly _rows = el('div', { class: 'jpd-progress-rows', tabindex: 0, role: 'group' });
  private readonly _summary = el('summary');
  private readonly _known = new Map<number, Bars>();
  private readonly _more = el('div', { class: 'jpd-muted', hidden: true });
  private _decided = false;
  private _over = false;
  private _updated = false;
  /** Whether there is nothing to show, by what was told last. */
  private _none = true;

  constructor(
    private readonly _context: IContext,
    private readonly _growth = new JointGrowth(_context.signal)
  ) {
    const { trans } = _context;
    this._rows.setAttribute('aria-label', trans('Progress of each rank'));
    this.node = el(
      'details',
      { class: 'jpd-asides', hidden: true },
      this._summary,
      this._rows,
      this._more
    );
  }

  update(run: IRunInfo): void {
    const { trans } = this._context;
    const all = run.progress_by_rank;
    const over = ended(run.state);
    if (!this._decided && all.length) {
      this._decided = true;
      this.node.open = run.world_size <= OPEN && !over;
    }
    if (over && !this._over) {
      // The bars within others end here. What is below stays where it is.
      this._rows.style.minHeight = `${this._rows.offsetHeight}px`;
    }
    this._over = over;
    this._more.hidden = all.length <= MOST;
    setText(this._more, trans('and %1 more ranks', all.length - MOST));
    let before: HTMLElement | null = null;
    for (const progress of all.slice(0, MOST)) {
      let bars = this._known.get(progress.rank);
      if (!bars) {
        bars = new Bars(progress.rank);
        this._known.set(progress.rank, bars);
        // A rank may begin its first bar after higher ranks.
        this._rows.insertBefore(bars.node, before ? before.nextSibling : this._rows.firstChild);
      }
      before = bars.node;
      bars.update(progress, run.world_size < 2, over, this._context);
    }
    // The bar of an only rank is in the header, but for those within it.
    const alone = run.world_size < 2;
    this._none = alone ? !this._known.get(0)?.within : !all.length;
    // A restart may leave no bars meanwhile.
    const fit = () => (this.node.hidden = this._none);
    // A run that has ended long ago has all parts at once.
    if ((this._updated || !over) && this.node.hidden && !this._none) {
      this._growth.soon(this, fit, WAIT_MS);
    } else {
      fit();
    }
    this._updated = true;
    setText(this._summary, alone ? trans('Progress') : trans('Progress of each rank'));
  }
}

/** The bars of one rank: the outermost behind the rank's number, those within it below. */
class Bars {
  readonly node: HTMLElement;
  private readonly _outer = new Row();
  private readonly _inner: Row[] = [];
  private _id: number | undefined;

  constructor(private readonly _rank: number) {
    this.node = el('div', { class: 'jpd-progress-rank' }, this._outer.node);
    this._outer.node.prepend(el('span', { class: 'jpd-ranks' }, String(_rank)));
  }

  /** How many bars there are within the outermost. */
  get within(): number {
    return this._inner.length;
  }

  update(progress: IRankProgress, alone: boolean, over: boolean, context: IContext): void {
    this._outer.node.hidden = alone;
    this._outer.update(progress, this._rank, over, context);
    const inner = progress.inner ?? [];
    if (over || progress.id !== this._id) {
      this._id = progress.id;
      this._inner.splice(inner.length).forEach(row => row.node.remove());
    }
    // Between two loops of the same bar the last one stays as it was, so that nothing jumps.
    inner.forEach((bar, i) => {
      if (i === this._inner.length) {
        const row = new Row();
        row.node.classList.add('jpd-progress-inner');
        this._inner.push(row);
        this.node.appendChild(row.node);
      }
      this._inner[i].update(bar, this._rank, over, context);
    });
  }
}

class Row {
  readonly node: HTMLElement;
  private readonly _fill = el('i');
  private readonly _text = el('span', { class: 'jpd-muted' });

  constructor() {
    this.node = el(
      'div',
      { class: 'jpd-progress-row' },
      el('div', { class: 'jpd-bar', 'aria-hidden': 'true' }, this._fill),
      this._text
    );
  }

  update(progress: IProgress, rank: number, over: boolean, context: IContext): void {
    const part = progress.total ? Math.min(1, progress.n / progress.total) : 0;
    this._fill.style.background = `var(${rankVariable(rank)})`;
    this._fill.style.width = `${100 * part}%`;
    setText(this._text, progressText(progress, context.trans, over));
    this._text.title = this._text.textContent ?? '';
  }
}
