/** The first row of a run: state, what it is, how long, how far, and Stop. */
import { rankCount, reason, runState, type IContext } from './context';
import { button, el, icon, setAttribute, setLinkedText, setText } from './dom';
import { bytes, capital, duration } from './format';
import { progressText } from './progresstext';
import { ended, type IRunInfo } from './source';
import { shownAll } from './trials/scale';

/** How long after Stop the same button becomes Kill: longer than a double click, or ranks could not save. */
const KILL_AFTER_MS = 3000;

export interface IHeaderOptions {
  /** Opens the run where there is more room; without it there is no such button. */
  openElsewhere?: { label: string; open: () => void };
  /** Lets the user answer ranks that wait; without it there is no such button. */
  debug?: (run: IRunInfo) => Promise<void>;
}

export class Header {
  readonly node: HTMLElement;
  private readonly _shape = el('i', { class: 'jpd-shape', 'aria-hidden': 'true' });
  private readonly _state = el('b', { class: 'jpd-state' });
  readonly name = el('span', { class: 'jpd-name' });
  private readonly _facts = el('span', { class: 'jpd-facts' });
  private readonly _id = el('span', { class: 'jpd-id' });
  private readonly _elapsed = el('span', { class: 'jpd-elapsed' });
  private readonly _progress = el('div', { class: 'jpd-progress', hidden: true });
  private readonly _bar = el('div', { class: 'jpd-bar', role: 'progressbar', 'aria-valuemin': 0 });
  private readonly _fill = el('i');
  private readonly _pace = el('span', { class: 'jpd-pace' });
  private readonly _detail = el(
    'div',
    { class: 'jpd-detail', hidden: true },
    icon('warning'),
    ' ',
    el('span')
  );
  private readonly _stop: HTMLButtonElement;
  private readonly _stacks: HTMLButtonElement;
  private readonly _debug: HTMLButtonElement;
  private _run: IRunInfo | null = null;
  private _received = 0;
  private _stopping: 'no' | 'asked' | 'killable' | 'killing' = 'no';
  private _killTimer: ReturnType<typeof setTimeout> | undefined;
  private _timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly _context: IContext,
    private readonly _options: IHeaderOptions,
    showStacks?: () => void
  ) {
    const { openElsewhere } = _options;
    const { trans, signal } = _context;
    this._bar.appendChild(this._fill);
    this._bar.setAttribute('aria-label', trans('Progress'));
    this._progress.append(this._bar, this._pace);
    this._stop = button(
      { label: trans('Stop'), text: trans('Stop'), icon: 'stop', class: 'jpd-stop' },
      () => void this._askStop(),
      signal
    );
    this._stop.hidden = true;
    this._stacks = button(
      { label: trans('Stacks: where every rank is'), text: trans('Stacks') },
      () => showStacks?.(),
      signal
    );
    this._stacks.hidden = true;
    this._debug = button(
      { label: trans('Answer the ranks that wait for you'), text: trans('Debug') },
      () => void this._askDebug(),
      signal
    );
    this._debug.hidden = true;
    this.node = el(
      'header',
      { class: 'jpd-header' },
      el('span', { class: 'jpd-status' }, this._shape, this._state),
      el(
        'span',
        { class: 'jpd-what' },
        this.name,
        // Where the row ends, the time stays with the last word before it.
        el('span', {}, this._facts, '\u00a0\u00a0', this._elapsed)
      ),
      this._id,
      this._progress,
      el(
        'span',
        { class: 'jpd-actions' },
        this._debug,
        this._stacks,
        this._stop,
        openElsewhere
          ? button({ label: openElsewhere.label, icon: 'open' }, openElsewhere.open, signal)
          : null
      ),
      this._detail
    );
    signal.addEventListener('abort', () => {
      clearInterval(this._timer);
      clearTimeout(this._killTimer);
    });
  }

  update(run: IRunInfo): void {
    const { trans } = this._context;
    if (ended(run.state) || run.attempt !== this._run?.attempt) {
      this._stopping = 'no';
    }
    this._run = run;
    this._received = performance.now();
    setAttribute(this._shape, 'data-state', run.state);
    setAttribute(this._state, 'data-state', run.state);
    setText(this._state, runState(run, trans));
    setText(this.name, run.name || run.label || run.id);
    setAttribute(this.name, 'title', run.id);
    // What commands such as %dist attach want.
    setText(this._id, run.id);
    setAttribute(this._id, 'title', this._context.trans('The run’s id'));
    const where = run.cluster ? trans('%1 (%2)', run.cluster, run.backend) : run.backend;
    const trials = run.tuning && (run.tuning.scaling ? trans('scaling') : trans('tuning'));
    const facts = [where, trials ?? rankCount(run.world_size, trans)];
    if (run.attempt > run.max_restarts) {
      facts.push(trans('attempt %1', run.attempt)); // an elastic run starts its ranks anew more often
    } else if (run.max_restarts) {
      facts.push(
        run.max_restarts === 1
          ? trans('%1 of 1 restart', run.attempt)
          : trans('%1 of %2 restarts', run.attempt, run.max_restarts)
      );
    }
    if (run.trial) {
      facts.push(`${trans('trial %1', run.trial.number)} (${shownAll(run.trial.parameters)})`);
    }
    setText(this._facts, facts.join(' · '));
    // How it stands by the backend's own words, such as a host that does not answer. Ended, it is below.
    // Unwatched, a notice says it with what to do.
    const detail = ended(run.state) || run.state === 'unwatched' ? null : run.reason;
    this._detail.hidden = !detail;
    setLinkedText(this._detail.lastChild as Element, capital(detail ?? ''));
    this._showStop(run);
    this._showProgress(run);
    this._tick();
    clearInterval(this._timer);
    if (!ended(run.state) && !this._context.signal.aborted) {
      this._timer = setInterval(() => this._tick(), run.started === null ? 1000 : 250);
    }
  }

  private _showStop(run: IRunInfo): void {
    const { trans } = this._context;
    this._stop.hidden = ended(run.state);
    this._stacks.hidden = run.state !== 'running';
    this._debug.hidden = !(this._options.debug && run.waiting);
    const texts = {
      no: trans('Stop'),
      asked: trans('Stopping …'),
      killable: trans('Kill'),
      killing: trans('Killing …')
    };
    setText(this._stop.lastChild as Text, texts[this._stopping]);
    const title = trans('The run is stopping. Kill it now: its ranks cannot save anything.');
    setAttribute(this._stop, 'title', this._stopping === 'killable' ? title : null);
    // Not `disabled`, because the button would lose the focus.
    const waits = this._stopping === 'asked' || this._stopping === 'killing';
    setAttribute(this._stop, 'aria-disabled', waits ? 'true' : null);
  }

  private _showProgress(run: IRunInfo): void {
    const { trans } = this._context;
    const progress = run.progress;
    // Of a run that went well it says nothing any more.
    this._progress.hidden = !progress || run.state === 'succeeded';
    setAttribute(this._bar, 'data-state', run.state);
    if (!progress) {
      return;
    }
    const { n, total } = progress;
    const part = total ? Math.min(1, n / total) : null;
    this._bar.hidden = part === null;
    this._fill.style.width = `${100 * (part ?? 0)}%`;
    setAttribute(this._bar, 'aria-valuemax', total === null ? null : String(total));
    setAttribute(this._bar, 'aria-valuenow', String(n));
    setText(this._pace, progressText(progress, trans, ended(run.state)));
  }

  private _tick(): void {
    const run = this._run;
    if (!run) {
      return;
    }
    const began = run.started ?? run.created;
    const now = run.host_time + (performance.now() - this._received) / 1000;
    const seconds = (run.ended ?? now) - began;
    const text =
      !ended(run.state) && seconds >= 1 ? duration(Math.floor(seconds)) : duration(seconds);
    setText(this._elapsed, text.replace(/^(\d)\.0 s/, run.ended === null ? '$1 s' : '$1.0 s'));
  }

  private async _askDebug(): Promise<void> {
    try {
      await (this._run && this._options.debug?.(this._run));
    } catch (error) {
      this._context.announce(reason(error));
      setAttribute(this._debug, 'title', reason(error));
    }
  }

  private async _askStop(): Promise<void> {
    const run = this._run;
    if (!run || this._stopping === 'asked' || this._stopping === 'killing') {
      return;
    }
    const kill = this._stopping === 'killable';
    this._stopping = kill ? 'killing' : 'asked';
    this._showStop(run);
    clearTimeout(this._killTimer);
    if (!kill) {
      this._killTimer = setTimeout(() => {
        if (this._stopping === 'asked' && this._run) {
          this._stopping = 'killable';
          this._showStop(this._run);
        }
      }, KILL_AFTER_MS);
    }
    const { source, announce, trans } = this._context;
    try {
      await source.stop(kill);
      announce(kill ? trans('Killing the run') : trans('Stopping the run'));
    } catch (error) {
      this._stopping = 'no';
      this._showStop(run);
      announce(trans('The run cannot be stopped: %1', reason(error)));
      setAttribute(this._stop, 'title', reason(error));
    }
  }
}

/** Memory as a text for the tips of the ranks. */
export function memory(peak: number | null, trans: IContext['trans']): string | null {
  return peak ? trans('memory peaked at %1', bytes(peak)) : null;
}
