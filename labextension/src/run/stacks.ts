/** Where every rank is: taken by themselves when a run stalls, kept with the run, and asked for at any time. */
import { reason, type IContext } from './context';
import { button, el, setText } from './dom';
import { framesNode } from './failure';
import { capital, clock, ranges } from './format';
import { ended, type IRunInfo, type IStacks } from './source';

/** The supervisor takes them just after it notices, and ranks write them one by one. */
const LOOK_MS = 1000;
const LOOKS = 15;

export class Stacks {
  readonly node: HTMLElement;
  private readonly _details: HTMLDetailsElement;
  private readonly _title = el('span', { class: 'jpd-title' });
  private readonly _answer = el('div', { class: 'jpd-stacks' });
  private readonly _again: HTMLButtonElement;
  private _asking = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  /** For which stall or which end of the run what is kept was looked for. */
  private _looked = '';

  constructor(private readonly _context: IContext) {
    const { trans, signal } = _context;
    this._again = button(
      { label: trans('Ask again'), icon: 'reset' },
      () => void this.ask(),
      signal
    );
    this._details = el('details', { open: true }, el('summary', {}, this._title), this._answer);
    this.node = el(
      'section',
      { class: 'jpd-stacks-box', 'aria-label': trans('Stacks'), hidden: true },
      this._details,
      el(
        'div',
        { class: 'jpd-stacks-head' },
        this._again,
        button(
          { label: trans('Close the stacks'), icon: 'close' },
          () => {
            this.node.hidden = true;
          },
          signal
        )
      )
    );
    signal.addEventListener('abort', () => clearTimeout(this._timer));
  }

  /** Show what was taken when the run stalled; of one that has ended, what was taken last. */
  update(run: IRunInfo): void {
    const over = ended(run.state);
    this._again.hidden = over;
    const why = over ? `${run.state} ${run.attempt}` : run.stall ? `${run.stall.since}` : '';
    if (why === this._looked) {
      return;
    }
    this._looked = why;
    clearTimeout(this._timer);
    if (why) {
      void this._look(over ? 1 : LOOKS, over ? 0 : (run.stall?.since ?? 0), run);
    }
  }

  private async _look(times: number, since: number, run: IRunInfo): Promise<void> {
    const { source, signal, announce, trans } = this._context;
    const looked = this._looked;
    const found = await source.keptStacks().catch(() => null);
    if (signal.aborted || looked !== this._looked || this._asking) {
      return;
    }
    const there = found !== null && found.groups.length > 0 && (found.time ?? since) >= since;
    if (there) {
      const open = run.state !== 'succeeded';
      if (this.node.hidden) {
        this._details.open = open;
        announce(trans('The stacks are shown'));
      }
      this._show(found, found.time ?? null);
    }
    if (times > 1 && (!there || found.silent.length || !found.hint)) {
      this._timer = setTimeout(() => void this._look(times - 1, since, run), LOOK_MS);
    }
  }

  async ask(): Promise<void> {
    const { trans, source, announce, signal } = this._context;
    this.node.hidden = false;
    this._details.open = true;
    if (this._asking) {
      return;
    }
    this._asking = true;
    setText(this._title, trans('Stacks'));
    this._answer.replaceChildren(
      el('span', { class: 'jpd-muted' }, trans('Reading the stacks of all ranks …'))
    );
    try {
      const stacks = await source.stacks();
      if (!signal.aborted) {
        this._show(stacks, Date.now() / 1000);
        announce(trans('The stacks are shown'));
      }
    } catch (error) {
      this._answer.replaceChildren(el('span', { class: 'jpd-muted' }, reason(error)));
      announce(reason(error));
    } finally {
      this._asking = false;
    }
  }

  private _show(stacks: IStacks, taken: number | null): void {
    const { trans } = this._context;
    this.node.hidden = false;
    setText(
      this._title,
      taken === null ? trans('Stacks') : trans('Stacks: where every rank was at %1', clock(taken))
    );
    this._answer.replaceChildren(...stackGroups(stacks, trans));
  }
}

function stackGroups(stacks: IStacks, trans: IContext['trans']): HTMLElement[] {
  const groups = stacks.groups.map(({ ranks, frames }) =>
    el(
      'div',
      { class: 'jpd-stack' },
      el(
        'b',
        {},
        ranks.length === 1 ? trans('Rank %1', ranks[0]) : trans('Ranks %1', ranges(ranks))
      ),
      framesNode(frames, trans)
    )
  );
  const nodes = stacks.hint ? [el('div', { class: 'jpd-stacks-hint' }, capital(stacks.hint))] : [];
  nodes.push(...groups);
  if (stacks.silent.length) {
    nodes.push(
      el('div', { class: 'jpd-muted' }, trans('No answer from ranks %1', ranges(stacks.silent)))
    );
  }
  return nodes.length ? nodes : [el('div', { class: 'jpd-muted' }, trans('No rank is running'))];
}
