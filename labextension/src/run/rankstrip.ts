/** The ranks as chips: a colour and a shape for the state, a bar for progress; up to a thousand.
 *
 * Where there are several hosts, the ranks of each stand behind its name. */
import { stateName, type IContext } from './context';
import { el, roving, setAttribute, setText } from './dom';
import { count } from './format';
import { memory } from './header';
import { progressText } from './progresstext';
import type { RanksShown } from './ranksshown';
import { ended, type IProgress, type IRankError, type IRankInfo } from './source';
import type { IRunInfo, State } from './source';

/** Above this, chips have no number: with the names of hosts beside them the room is less. */
const NUMBERED = 64;
const NUMBERED_ON_HOSTS = 32;
const STATES: State[] = [
  'failed',
  'lost',
  'stopped',
  'pending',
  'running',
  'unwatched',
  'succeeded'
];

export class RankStrip {
  readonly node: HTMLElement;
  /** By rank. */
  private readonly _chips: HTMLButtonElement[] = [];
  /** As they are shown, host by host. */
  private _order: HTMLButtonElement[] = [];
  private _hosts = '';
  private readonly _keys: string[] = [];
  private readonly _box: HTMLElement;
  private readonly _summary: HTMLElement;
  private readonly _counts = new Map<State, HTMLButtonElement>();
  private readonly _tip = el('div', { class: 'jpd-tip', role: 'tooltip', hidden: true });
  private _run: IRunInfo | null = null;
  /** The rank that failed first, and those that ended because of it. */
  private _cause: number | null = null;
  private _victims: ReadonlySet<number> = new Set();
  private _bad: ReadonlyMap<number, string> = new Map();
  private _tipFor = -1;

  constructor(
    private readonly _context: IContext,
    private readonly _shown: RanksShown,
    /** How long a rank has been quiet, where that is worth a word. */
    private readonly _quiet: (rank: number) => string | null = () => null
  ) {
    const { trans, signal } = _context;
    this._box = el('div', { class: 'jpd-chips', role: 'group', 'aria-label': trans('Ranks') });
    for (const state of STATES) {
      this._counts.set(state, this._count(state));
    }
    this._summary = el('div', { class: 'jpd-strip-summary' }, ...this._counts.values());
    this.node = el('div', { class: 'jpd-strip' }, this._box, this._summary, this._tip);
    roving(this._box, () => this._order, signal);
    _shown.onChange(() => this._mark());
    const rankAt = (event: Event) => {
      const chip = (event.target as HTMLElement).closest('button');
      return chip ? this._chips.indexOf(chip) : -1;
    };
    this._box.addEventListener(
      'click',
      event => {
        const rank = rankAt(event);
        if (rank >= 0) {
          this._shown.click(rank, event, true);
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
    const hosts = hostsOf(run);
    const several = hosts.size > 1;
    const many = run.world_size > (several ? NUMBERED_ON_HOSTS : NUMBERED);
    setAttribute(this.node, 'data-many', many ? '' : null);
    setAttribute(this.node, 'data-hosts', several ? '' : null);
    while (this._chips.length < run.world_size) {
      this._add(this._chips.length, run.world_size > NUMBERED);
    }
    this._arrange(hosts);
    const progress = new Map(run.progress_by_rank.map(p => [p.rank, p]));
    for (const rank of run.ranks) {
      this._updateChip(rank, progress.get(rank.rank));
    }
    const states = new Set(run.ranks.map(rank => rank.state));
    this._summary.hidden = run.world_size < 2 || (states.size < 2 && !many);
    for (const [state, node] of this._counts) {
      const number = run.ranks.filter(rank => rank.state === state).length;
      node.hidden = !number;
      const name = stateName(state, this._context.trans).toLowerCase();
      setText(node.lastChild as Text, `${count(number)} ${name}`);
    }
    if (this._tipFor >= 0) {
      this._showTip(this._tipFor);
    }
  }

  /** Tell the rank that failed first from those that ended because of it. */
  setCause(errors: readonly IRankError[]): void {
    this._cause = errors.find(error => !error.collateral)?.rank ?? null;
    const victims = errors.filter(error => error.collateral).map(error => error.rank);
    this._victims = new Set(this._cause === null ? [] : victims);
    this._redraw();
  }

  /** Mark ranks whose metrics are no numbers any more. */
  setBad(ranks: ReadonlyMap<number, string>): void {
    this._bad = ranks;
    this._redraw();
  }

  private _redraw(): void {
    if (this._run) {
      this.update(this._run);
    }
  }

  /** How many ranks are in a state; pressed, it leads from one of them to the next. */
  private _count(state: State): HTMLButtonElement {
    const { trans, signal } = this._context;
    const node = el(
      'button',
      {
        type: 'button',
        class: 'jpd-count',
        title: trans('Go to the next of these ranks')
      },
      el('i', { class: 'jpd-shape', 'data-state': state, 'aria-hidden': 'true' }),
      ' '
    );
    node.addEventListener('click', () => this._goTo(state), { signal });
    return node;
  }

  private _goTo(state: State): void {
    const now = this._order.findIndex(chip => chip.tabIndex === 0);
    const from = this._order[now]?.dataset.state === state ? now + 1 : now;
    const next = [...this._order.slice(from), ...this._order.slice(0, from)].find(
      chip => chip.dataset.state === state
    );
    if (next) {
      this._order[now].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  }

  private _mark(): void {
    const { only } = this._shown;
    this._chips.forEach((chip, rank) =>
      setAttribute(chip, 'aria-pressed', String(only?.has(rank) ?? false))
    );
  }

  /** Put the chips of each host behind its name; where there is one host alone, it is not named. */
  private _arrange(hosts: Map<string, number[]>): void {
    const key = JSON.stringify([...hosts]);
    if (key === this._hosts) {
      return;
    }
    this._hosts = key;
    const { trans } = this._context;
    const focused = this._box.contains(document.activeElement) ? document.activeElement : null;
    this._order = [...hosts.values()].flat().map(rank => this._chips[rank]);
    if (hosts.size > 1) {
      this._box.replaceChildren(
        ...[...hosts].map(([host, ranks]) =>
          el(
            'div',
            {
              class: 'jpd-host',
              role: 'group',
              'aria-label': host ? trans('Host %1', host) : trans('Not on a host yet')
            },
            el('span', { class: 'jpd-host-name', title: host, 'aria-hidden': 'true' }, host || '…'),
            el('div', { class: 'jpd-host-chips' }, ...ranks.map(rank => this._chips[rank]))
          )
        )
      );
    } else {
      this._box.replaceChildren(...this._order);
    }
    (focused as HTMLElement | null)?.focus();
  }

  private _add(rank: number, many: boolean): void {
    const chip = el(
      'button',
      { type: 'button', class: 'jpd-chip', tabindex: rank ? -1 : 0 },
      el('i', { class: 'jpd-shape', 'aria-hidden': 'true' }),
      many ? null : el('span', { 'aria-hidden': 'true' }, String(rank)),
      many ? null : el('i', { class: 'jpd-chip-bar', 'aria-hidden': 'true' })
    );
    setAttribute(chip, 'aria-pressed', String(this._shown.only?.has(rank) ?? false));
    this._chips.push(chip);
    this._keys.push('');
  }

  private _updateChip(rank: IRankInfo, progress: IProgress | undefined): void {
    const chip = this._chips[rank.rank];
    const part = progress?.total ? Math.min(1, progress.n / progress.total) : 0;
    const about = this._about(rank.rank);
    const key = `${rank.state} ${rank.exit_code} ${rank.signal_name} ${part.toFixed(3)} ${about.join()}`;
    if (!chip || key === this._keys[rank.rank]) {
      return;
    }
    this._keys[rank.rank] = key;
    setAttribute(chip, 'data-state', rank.state);
    setAttribute(chip.firstElementChild as Element, 'data-state', rank.state);
    setAttribute(chip, 'data-cause', this._cause === rank.rank ? '' : null);
    setAttribute(chip, 'data-victim', this._victims.has(rank.rank) ? '' : null);
    setAttribute(chip, 'data-bad', this._bad.has(rank.rank) ? '' : null);
    const bar = chip.querySelector<HTMLElement>('.jpd-chip-bar');
    if (bar) {
      bar.style.width = `${100 * part}%`;
    }
    const { trans } = this._context;
    setAttribute(
      chip,
      'aria-label',
      `${trans('Rank %1', rank.rank)}, ${[...describe(rank, trans), ...about].join(', ')}`
    );
  }

  /** What is known of a rank besides its state. */
  private _about(rank: number): string[] {
    const { trans } = this._context;
    const facts: (string | null | undefined)[] = [
      this._cause === rank && this._victims.size ? trans('failed first') : null,
      this._victims.has(rank) ? trans('because of rank %1', this._cause ?? '?') : null,
      this._bad.get(rank)
    ];
    return facts.filter((fact): fact is string => Boolean(fact));
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
    const lines = [...describe(info, trans), ...this._about(rank)];
    if (progress) {
      lines.push(progressText(progress, trans, ended(info.state)));
    }
    const quiet = this._quiet(rank);
    if (quiet) {
      lines.push(quiet);
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

/** The ranks of each host, in the order of the lowest one; '' stands for those that are on none yet. */
function hostsOf(run: IRunInfo): Map<string, number[]> {
  const hosts = new Map<string, number[]>();
  for (const { rank, host } of run.ranks) {
    const known = hosts.get(host ?? '');
    if (known) {
      known.push(rank);
    } else {
      hosts.set(host ?? '', [rank]);
    }
  }
  return hosts;
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
