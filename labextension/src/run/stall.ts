/** The notice that no rank says anything any more, with how long that is by now. */
import type { IContext } from './context';
import { notice } from './failure';
import { setText } from './dom';
import { duration } from './format';
import { ended, type IRunInfo } from './source';

export class StallNotice {
  readonly node: HTMLElement;
  private _since: number | null = null;
  private _run: IRunInfo | null = null;
  private _received = 0;
  private _timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly _context: IContext) {
    const { trans, signal } = _context;
    this.node = notice('warning', ' ', trans('The ranks may be waiting for each other.'));
    signal.addEventListener('abort', () => clearInterval(this._timer));
  }

  /** Whether the run is stalled now. */
  update(run: IRunInfo): boolean {
    const since = ended(run.state) ? null : (run.stall?.since ?? null);
    this._run = run;
    this._received = performance.now();
    if (since !== this._since) {
      this._since = since;
      clearInterval(this._timer);
      if (since !== null) {
        this._timer = setInterval(() => this._tick(), 1000);
        this._context.announce(this._context.trans('No rank has printed or logged for a while'));
      }
    }
    this._tick();
    return since !== null;
  }

  private _tick(): void {
    if (this._since === null || !this._run) {
      return;
    }
    // By the clock of the other side, which both times are of.
    const now = this._run.host_time + (performance.now() - this._received) / 1000;
    const quiet = duration(Math.max(1, Math.floor(now - this._since))).replace('.0', '');
    const text = this._context.trans('No rank has printed or logged for %1', quiet);
    setText(this.node.querySelector('b') as Element, text);
  }
}
