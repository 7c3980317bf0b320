/** Reads again what may have changed: one reading at a time, and a pause after each. */
export class Rereading {
  private _reading = false;
  private _stale = false;

  /** `read` returns after how many milliseconds there may be another one. It takes nothing that it gets once
   * `signal` is aborted. Nothing is read as long as it is not `ready`. */
  constructor(
    private readonly _read: () => Promise<number>,
    private readonly _signal: AbortSignal,
    private readonly _ready: () => boolean = () => true
  ) {}

  /** There may be something else now. */
  changed(): void {
    this._stale = true;
    this.goOn();
  }

  /** It may be ready now. */
  goOn(): void {
    if (!this._reading) {
      void this._follow();
    }
  }

  private async _follow(): Promise<void> {
    this._reading = true;
    try {
      while (this._stale && this._ready() && !this._signal.aborted) {
        this._stale = false;
        const pauseMs = await this._read();
        if (pauseMs > 0) {
          await new Promise(resolve => setTimeout(resolve, pauseMs));
        }
      }
    } finally {
      this._reading = false;
    }
  }
}
