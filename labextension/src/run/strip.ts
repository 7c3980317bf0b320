/** The ranks as chips: a colour and a shape for the state, a bar for progress; up to a thousand. */
import { stateName, type IContext } from './context';
import { el, roving, setAttribute, setText } from './dom';
import { count, rate } from './format';
import { memory } from './header';
import type { IProgress, IRankInfo, IRunInfo, State } from './source';

/** Above this, chips have no number. */
const NUMBERED = 64;
const STATES: State[] = ['failed', 'lost', 'stopped', 'pending', 'running', 'succeeded'];

export class Strip {
  readonly node: HTMLElement;
  private readonly _chips: HTMLButtonElement[] = [];
  private readonly _keys: string[] = [];
  private readonly _box: HTMLElement;
  private readonly _summary = el('span', { class: 'jpd-strip-summary' });
  private readonly _tip = el('div', { class: 'jpd-tip', role: 'tooltip', hidden: true });
  private _run: IRunInfo | null = null;
  private _tipFor = -1;
  private _selected: number | null = null;

  constructor(
    private readonly _context: IContext,
    private readonly _select: (rank: number) => void
  ) {
    const { trans, signal } = _context;
    this._box = el('div', { class: 'jpd-chips', role: 'group', 'aria-label': trans('Ranks') });
    this.node = el('div', { class: 'jpd-strip' }, this._box, this._summary, this._tip);
    roving(this._box, () => this._chips, signal);
    const rankAt = (event: Event) => {
      const chip = (event.target as HTMLElement).closest('button');
      return chip ? this._chips.indexOf(chip) : -1;
    };
    this._box.addEventListener(
      'click',
      event => {
        const rank = rankAt(event);
        if (rank >= 0) {
          this._select(rank);
        }
      },
      { signal }
    );
    for (const type of ['mouseover', 'focusin']) {
      this._box.addEventListener(type, event => this._showTip(rankAt(event)), { signal });
    }
    for (const type of ['mouseleave', 'focusout']) {
      this._box.addEventListener(type, () => this._showTip(-1), { signal });
    }
    this._box.addEventListener(
      'keydown',
      event => {
        if (event.key === 'Escape' && this._tipFor >= 0) {
          event.stopPropagation();
          this._showTip(-1);
        }
      },
      { signal }
    );
  }

  update(run: IRunInfo): void {
    this._run = run;
    const many = run.world_size > NUMBERED;
    setAttribute(this.node, 'data-many', many ? '' : null);
    while (this._chips.length < run.world_size) {
      this._add(this._chips.length, many);
    }
    const progress = new Map(run.progress_by_rank.map(p => [p.rank, p]));
    for (const rank of run.ranks) {
      this._updateChip(rank, progress.get(rank.rank));
    }
    const counts = STATES.map(state => [
      state,
      run.ranks.filter(rank => rank.state === state).length
    ]) as [State, number][];
    const present = counts.filter(([, n]) => n);
    this._summary.hidden = run.world_size < 2 || (present.length < 2 && !many);
    setText(
      this._summary,
      present
        .map(([state, n]) => `${count(n)} ${stateName(state, this._context.trans).toLowerCase()}`)
        .join(' · ')
    );
    if (this._tipFor >= 0) {
      this._showTip(this._tipFor);
    }
  }

  /** Mark the rank whose log is shown. */
  select(rank: number | null): void {
    if (this._selected !== null) {
      this._chips[this._selected]?.setAttribute('aria-pressed', 'false');
    }
    this._selected = rank;
    if (rank !== null) {
      this._chips[rank]?.setAttribute('aria-pressed', 'true');
    }
  }

  private _add(rank: number, many: boolean): void {
    const chip = el(
      'button',
      { type: 'button', class: 'jpd-chip', tabindex: rank ? -1 : 0, 'aria-pressed': 'false' },
      el('i', { class: 'jpd-shape', 'aria-hidden': 'true' }),
      many ? null : el('span', { 'aria-hidden': 'true' }, String(rank)),
      many ? null : el('i', { class: 'jpd-chip-bar', 'aria-hidden': 'true' })
    );
    if (this._selected === rank) {
      chip.setAttribute('aria-pressed', 'true');
    }
    this._chips.push(chip);
    this._keys.push('');
    this._box.appendChild(chip);
  }

  private _updateChip(rank: IRankInfo, progress: IProgress | undefined): void {
    const chip = this._chips[rank.rank];
    const part = progress?.total ? Math.min(1, progress.n / progress.total) : 0;
    const key = `${rank.state} ${rank.exit_code} ${rank.signal_name} ${part.toFixed(3)}`;
    if (!chip || key === this._keys[rank.rank]) {
      return;
    }
    this._keys[rank.rank] = key;
    setAttribute(chip, 'data-state', rank.state);
    setAttribute(chip.firstElementChild as Element, 'data-state', rank.state);
    const bar = chip.querySelector<HTMLElement>('.jpd-chip-bar');
    if (bar) {
      bar.style.width = `${100 * part}%`;
    }
    const { trans } = this._context;
    setAttribute(
      chip,
      'aria-label',
      `${trans('Rank %1', rank.rank)}, ${describe(rank, trans).join(', ')}`
    );
  }

  private _showTip(rank: number): void {
    this._tipFor = rank;
    const info = this._run?.ranks.find(r => r.rank === rank);
    const chip = this._chips[rank];
    this._tip.hidden = !info || !chip;
    if (!info || !chip) {
      return;
    }
    const { trans } = this._context;
    const progress = this._run?.progress_by_rank.find(p => p.rank === rank);
    const lines = describe(info, trans);
    if (progress) {
      lines.push(progressText(progress, trans));
    }
    this._tip.replaceChildren(
      el('b', {}, trans('Rank %1', rank)),
      ...lines.map(line => el('div', {}, line))
    );
    const room = this.node.clientWidth - this._tip.offsetWidth;
    this._tip.style.left = `${Math.max(0, Math.min(room, chip.offsetLeft))}px`;
    this._tip.style.top = `${chip.offsetTop - this._box.scrollTop + chip.offsetHeight + 4}px`;
  }
}

export function progressText(progress: IProgress, trans: IContext['trans']): string {
  const { n, total, desc } = progress;
  const done = `${desc ? `${desc} ` : ''}${count(n)}${total === null ? '' : `/${count(total)}`}`;
  return progress.rate ? `${done} · ${trans('%1 steps/s', rate(progress.rate))}` : done;
}

/** A rank's facts, one each. */
function describe(rank: IRankInfo, trans: IContext['trans']): string[] {
  const facts: (string | null)[] = [
    stateName(rank.state, trans).toLowerCase(),
    rank.host ? trans('host %1', rank.host) : null,
    rank.pid === null ? null : trans('pid %1', rank.pid),
    rank.signal_name
      ? trans('ended by %1', rank.signal_name)
      : rank.exit_code === null
        ? null
        : trans('exit code %1', rank.exit_code),
    memory(rank.peak_memory_bytes, trans)
  ];
  return facts.filter((fact): fact is string => fact !== null);
}
