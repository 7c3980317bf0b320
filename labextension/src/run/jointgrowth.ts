/** Parts of a view that appear in one frame. So the view's height changes once and not with each of them. */

/** How long a part waits for others. */
const WAIT_MS = 500;

export class JointGrowth {
  private readonly _waiting = new Map<object, () => void>();
  private _timer: ReturnType<typeof setTimeout> | undefined;
  /** When all that wait grow at the latest. */
  private _due_ms = Infinity;

  constructor(signal: AbortSignal) {
    signal.addEventListener('abort', () => clearTimeout(this._timer));
  }

  /** Let a part grow with the next one, or after `wait_ms`. Of a part's growths the last counts. */
  soon(part: object, grow: () => void, wait_ms = WAIT_MS): void {
    this._waiting.set(part, grow);
    const due_ms = performance.now() + wait_ms;
    if (due_ms < this._due_ms) {
      this._due_ms = due_ms;
      clearTimeout(this._timer);
      this._timer = setTimeout(() => this.now(), wait_ms);
    }
  }

  /** Something grows now, and with it all that wait. */
  now(): void {
    clearTimeout(this._timer);
    this._due_ms = Infinity;
    const growths = [...this._waiting.values()];
    this._waiting.clear();
    growths.forEach(grow => grow());
  }
}
