/** The runs that go on, as the panel "Running" lists sessions: opened with a click, stopped with another. */
import type { IRunningSessions } from '@jupyterlab/running';
import { type ISignal, Signal } from '@lumino/signaling';
import { distributedIcon } from './icons';
import { RunsModel } from './model/runs';
import { placeText } from './run/context';
import { translating } from './run/trans';
import { ended, type IRunSummary } from './run/source';
import { stopRun } from './sidebar/actions';
import { basename, stateOf } from './sidebar/marks';
import type { IDistributed, IRunOpener } from './tokens';

export class RunningRuns implements IRunningSessions.IManager {
  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly runningChanged: ISignal<this, void>;
  private readonly _runningChanged = new Signal<this, void>(this);
  /** Has no filter, whatever the sidebar shows. */
  readonly model: RunsModel;
  private _shown = '';

  constructor(
    private readonly _dist: IDistributed,
    private readonly _opener: IRunOpener
  ) {
    const { server, lists, trans } = _dist;
    this.name = trans.__('Distributed Runs');
    this.shutdownLabel = trans.__('Stop');
    this.shutdownAllLabel = trans.__('Stop All');
    this.shutdownAllConfirmationText = trans.__('Stop all running distributed runs?');
    this.runningChanged = this._runningChanged;
    this.model = new RunsModel({ server, lists, trans, interval_s: 60 });
    this.model.changed.connect(this._onChanged, this);
    this.model.active = true;
  }

  running(): IRunningSessions.IRunningItem[] {
    return this._alive().map(run => this._item(run));
  }

  shutdownAll(): void {
    for (const run of this._alive()) {
      void stopRun(this.model, run, this._dist.trans);
    }
  }

  refreshRunning(): void {
    void this.model.refresh();
  }

  private _alive(): IRunSummary[] {
    return this.model.runs.filter(run => !ended(run.state));
  }

  private _item(run: IRunSummary): IRunningSessions.IRunningItem {
    const { trans } = this._dist;
    return {
      open: () => this._opener.open(run.id),
      shutdown: () => void stopRun(this.model, run, trans),
      icon: () => distributedIcon,
      label: () => run.name,
      labelTitle: () =>
        [trans.__('%1: %2', run.name, stateOf(run, trans)), run.notebook, run.id]
          .filter(Boolean)
          .join('\n'),
      detail: () =>
        [run.notebook && basename(run.notebook), placeText(run, translating(trans))]
          .filter(Boolean)
          .join(' · ')
    };
  }

  private _onChanged(): void {
    const shown = this._alive()
      .map(run => run.id + run.state)
      .join();
    if (shown !== this._shown) {
      this._shown = shown;
      this._runningChanged.emit();
    }
  }
}
