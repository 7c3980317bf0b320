/** Durations and ages in a table, which grow between two readings of the list. */
import { setText } from '../run/dom';
import type { IRunSummary } from '../run/source';
import type { IColumn } from './columns';

const GROWING = ['age', 'duration'];

export class Clock {
  private _received = 0;

  /** A list of runs has just arrived. */
  set(): void {
    this._received = performance.now();
  }

  /** A run as it is now, by the clock of the machine that told of it. */
  now(run: IRunSummary): IRunSummary {
    const since = (performance.now() - this._received) / 1000;
    return { ...run, host_time: run.host_time + since };
  }

  /** Write the present texts into rows. Their first cell is not one of the columns. */
  tick(body: HTMLTableSectionElement, runs: readonly IRunSummary[], columns: IColumn[]): void {
    const known = new Map(runs.map(run => [run.id, run]));
    const growing = columns.flatMap(({ id }, i) => (GROWING.includes(id) ? i : []));
    for (const row of body.rows) {
      const run = known.get(row.dataset.id ?? '');
      if (run) {
        growing.forEach(i => setText(row.cells[i + 1], columns[i].text(this.now(run))));
      }
    }
  }
}
