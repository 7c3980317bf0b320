/** The attempts before the current one: whose log is shown, and why each of them ended. */
import { reason, type IContext } from './context';
import { el, setText } from './dom';
import { failureNode } from './failure';
import type { IRunInfo } from './source';

/** Of a run that is restarted again and again, the last ones. */
const MOST = 20;

/** A list to choose an attempt from, by the numbers of `dist.attempt()`; hidden while there is one alone. */
export class AttemptChoice {
  readonly node: HTMLSelectElement;
  /** null stands for the current one, whichever that is. */
  chosen: number | null = null;
  private _current = 0;

  constructor(
    private readonly _context: IContext,
    changed: () => void
  ) {
    const { trans, signal } = _context;
    this.node = el('select', { class: 'jpd-input', 'aria-label': trans('Attempt'), hidden: true });
    this.node.addEventListener(
      'change',
      () => {
        const attempt = this._current - this.node.selectedIndex;
        this.chosen = attempt === this._current ? null : attempt;
        changed();
      },
      { signal }
    );
  }

  /** Choose the current one. */
  reset(): void {
    this.chosen = null;
    this.node.selectedIndex = 0;
  }

  update(current: number): void {
    if (current === this._current) {
      return;
    }
    this._current = current;
    const { trans } = this._context;
    this.node.hidden = current === 0;
    this.node.replaceChildren(
      ...Array.from({ length: current + 1 }, (_, i) =>
        el('option', {}, trans('attempt %1', current - i))
      )
    );
    this.node.selectedIndex = this.chosen === null ? 0 : current - this.chosen;
  }
}

/** Folded: the failures of the attempts before, the newest one first. */
export class Restarts {
  readonly node: HTMLDetailsElement;
  private readonly _summary = el('summary');
  private readonly _list = el('div', { class: 'jpd-restarts' });
  private readonly _known = new Map<number, HTMLElement>();
  private _run: IRunInfo | null = null;
  private _loading = false;

  constructor(private readonly _context: IContext) {
    this.node = el('details', { class: 'jpd-asides', hidden: true }, this._summary, this._list);
    const { signal } = _context;
    this.node.addEventListener('toggle', () => void this._load(), { signal });
  }

  update(run: IRunInfo): void {
    this._run = run;
    this.node.hidden = !run.attempt;
    if (!run.attempt) {
      return;
    }
    const { trans } = this._context;
    setText(
      this._summary,
      run.attempt === 1
        ? trans('Why it was restarted')
        : trans('Why it was restarted %1 times', run.attempt)
    );
    void this._load();
  }

  private async _load(): Promise<void> {
    const run = this._run;
    if (!run || !this.node.open || this._loading) {
      return;
    }
    this._loading = true;
    const first = Math.max(0, run.attempt - MOST);
    for (let attempt = first; attempt < run.attempt; attempt++) {
      if (!this._known.has(attempt)) {
        const node = await this._report(attempt);
        if (this._context.signal.aborted) {
          return;
        }
        if (node) {
          this._known.set(attempt, node);
          this._list.prepend(node);
        }
      }
    }
    this._loading = false;
  }

  private async _report(attempt: number): Promise<HTMLElement | null> {
    const { source, trans } = this._context;
    try {
      const [card, errors] = await Promise.all([source.card(attempt), source.errors(attempt)]);
      return card
        ? failureNode(card, errors, this._context)
        : el(
            'div',
            { class: 'jpd-muted' },
            trans('Attempt %1: no rank reported a reason', attempt)
          );
    } catch (error) {
      this._context.announce(reason(error));
      return null; // to be tried again
    }
  }
}
