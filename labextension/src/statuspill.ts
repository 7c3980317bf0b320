/** The runs that go on as a few words in the status bar: `2 runs · 60 % · 3 min`. */
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { el, setAttribute, setText } from './run/dom';
import { placeText } from './run/context';
import { percentOf, secondsLeft } from './run/progresstext';
import { translating } from './run/trans';
import { ended, type IRunSummary } from './run/source';
import type { RunsModel } from './model/runs';
import type { IDistributed } from './tokens';

/** Shown while runs go on; a click shows them. */
export class StatusPill extends Widget {
  /** Emitted when there is something to show, or nothing any more. */
  readonly shownChanged = new Signal<this, void>(this);
  private readonly _button: HTMLButtonElement;
  private _shown = false;

  constructor(
    private readonly _runs: RunsModel,
    private readonly _dist: IDistributed,
    show: () => void
  ) {
    super();
    this.addClass('jpd-pill');
    this._button = el('button', { type: 'button', class: 'jpd-pill-button' });
    this._button.addEventListener('click', show);
    this.node.appendChild(this._button);
    _runs.changed.connect(this._update, this);
    this._update();
  }

  get shown(): boolean {
    return this._shown;
  }

  override dispose(): void {
    Signal.clearData(this);
    super.dispose();
  }

  private _update(): void {
    const alive = this._runs.runs.filter(run => !ended(run.state));
    const { trans } = this._dist;
    if (alive.length) {
      setText(this._button, pillText(alive, trans));
      const names = alive.map(run => `${run.name} · ${placeText(run, translating(trans))}`);
      setAttribute(this._button, 'title', names.join('\n'));
    }
    if (this._shown !== alive.length > 0) {
      this._shown = alive.length > 0;
      this.shownChanged.emit();
    }
  }
}

/** How many runs, and of the one that ends last how far it is and how long it takes. */
export function pillText(runs: readonly IRunSummary[], trans: IDistributed['trans']): string {
  const parts = [trans._n('%1 run', '%1 runs', runs.length)];
  const bars = runs.flatMap(({ progress }) =>
    progress?.total
      ? [
          {
            part: progress.n / progress.total,
            percent: percentOf(progress) ?? 0,
            left: secondsLeft(progress)
          }
        ]
      : []
  );
  // With one that says nothing of itself among them nobody can tell how far all are.
  if (bars.length && bars.length === runs.length) {
    bars.sort((a, b) => (b.left ?? Infinity) - (a.left ?? Infinity) || a.part - b.part);
    const [last] = bars;
    parts.push(`${last.percent} %`);
    if (last.left !== null) {
      parts.push(rough(last.left, trans));
    }
  }
  return parts.join(' · ');
}

/** To be glanced at: seconds would tick where nobody looks. */
function rough(seconds: number, trans: IDistributed['trans']): string {
  const minutes = Math.ceil(seconds / 60);
  return seconds < 60
    ? trans.__('< 1 min')
    : minutes < 2
      ? trans.__('1 min')
      : minutes < 100
        ? trans.__('%1 min', minutes)
        : trans.__('%1 h', Math.round(minutes / 60));
}
