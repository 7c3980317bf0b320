/** The log whose last lines come with the news of them. */
import {
  tailOf,
  type ILogPage,
  type ILogTail,
  type ILogSubscription,
  type IRunSource
} from './source';
import type { LogOf } from './source';

/** How long lines that come unasked are waited for. */
export const SOON_MS = 150;

export class FollowedLog {
  private _of: LogOf | undefined;
  private _reading: ILogSubscription | undefined;
  private _until_ms = 0;

  constructor(private readonly _source: IRunSource) {}

  /** Whether its first lines are about to come unasked. */
  get begins(): boolean {
    return performance.now() < this._until_ms;
  }

  /** Follow a log; undefined: none. */
  follow(of: LogOf | undefined): void {
    if (of !== this._of) {
      this._reading?.dispose();
      this._of = of;
      this._reading = of === undefined ? of : this._source.followLog?.(of);
      this._until_ms = this._reading?.live ? performance.now() + SOON_MS : 0;
    }
  }

  /** What has come of a log. */
  pageOf(of: LogOf, came: ILogTail[]): ILogPage | undefined {
    const { rank, launcher } = tailOf(of);
    const page = came.find(one => one.rank === rank && one.launcher === launcher)?.page;
    if (page && of === this._of) {
      this._until_ms = 0;
    }
    return page;
  }
}
