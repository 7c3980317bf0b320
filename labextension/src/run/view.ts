/** The view of one run: header, ranks, what went wrong, metrics, logs, results. */
import type { IDisposable, IRunSource } from './source';
import { english, type Trans } from './trans';

export interface IRunViewOptions {
  source: IRunSource;
  trans?: Trans;
  /** Opens the run where there is more room; without it there is no such button. */
  openElsewhere?: { label: string; open: () => void };
  /** Said once, in place of the view, when there is no such run. */
  onMissing?: (reason: string) => void;
}

export class RunView implements IDisposable {
  readonly node: HTMLElement = document.createElement('section');

  constructor(options: IRunViewOptions) {
    this.node.className = 'jpd-run';
    this.node.textContent = (options.trans ?? english)('Run %1', options.source.id);
  }

  dispose(): void {
    this.node.remove();
  }
}
