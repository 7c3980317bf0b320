/** The first lines of a run that goes on are drawn before anything else of it is asked for. */
import { ended, type IRunInfo } from './source';

/** How long lines are waited for. */
const LATEST_MS = 250;

export class FirstLines {
  /** Whether the rest may be asked for. */
  over = false;
  private _begun = false;

  constructor(
    private readonly _then: () => void,
    private readonly _signal: AbortSignal
  ) {}

  /** How the run stands. */
  update({ state }: IRunInfo): void {
    if (ended(state)) {
      this._end();
    } else if (!this._begun) {
      this._begun = true;
      setTimeout(() => this._end(), LATEST_MS);
    }
  }

  /** There are lines, which are on the screen after the next frame. */
  lines(): void {
    if (!this.over) {
      requestAnimationFrame(() => setTimeout(() => this._end()));
    }
  }

  private _end(): void {
    if (!this.over && !this._signal.aborted) {
      this.over = true;
      this._then();
    }
  }
}
