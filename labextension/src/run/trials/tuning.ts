/** A tuning run's part of its view: how far it is, what its trials look like, and all of them in a table. */
import type { ITuning } from '../../answers/runs';
import type { IContext } from '../context';
import { el, setText } from '../dom';
import { importance, overTime, parallel, told } from './drawings';
import { scalingTable, speedup } from './scaling';
import { TrialTable } from './table';

export class Tuning {
  readonly node: HTMLElement;
  private readonly _summary = el('div', { class: 'jpd-tuning-summary' });
  private readonly _drawings = el('div', { class: 'jpd-drawings' });
  private _table: TrialTable | null = null;
  private _key = '';

  constructor(
    private readonly _context: IContext,
    private readonly _openRun?: (id: string) => void
  ) {
    const label = _context.trans('Trials');
    this.node = el('section', { class: 'jpd-tuning', 'aria-label': label, hidden: true });
  }

  /** Undefined: the run tunes nothing, and this part is not there. */
  update(tuning: ITuning | undefined): void {
    this.node.hidden = tuning === undefined;
    const key = JSON.stringify(tuning ?? null);
    if (!tuning || key === this._key) {
      return;
    }
    this._key = key;
    setText(this._summary, summary(tuning, this._context));
    const { trans } = this._context;
    const { scaling } = tuning;
    const drawn: [string, SVGElement | null][] = scaling
      ? [[trans('Speed-up by ranks'), speedup(scaling, trans)]]
      : [
          [trans('%1 over time', tuning.metric), overTime(tuning, trans)],
          [trans('Parallel coordinates'), parallel(tuning, trans)],
          [trans('Importance'), importance(tuning, trans)]
        ];
    const figures = drawn.flatMap(([caption, node]) =>
      node ? [el('figure', {}, el('figcaption', {}, caption), node)] : []
    );
    this._drawings.replaceChildren(
      ...figures,
      ...(scaling?.rows.length ? [scalingTable(scaling, this._context)] : [])
    );
    this._made(tuning).update(tuning);
  }

  /** Nothing is made for a run that tunes nothing. */
  private _made({ scaling }: ITuning): TrialTable {
    if (!this._table) {
      const { trans } = this._context;
      this._table = new TrialTable(this._context, this._openRun);
      const title = el('h4', { class: 'jpd-title' }, scaling ? trans('Scaling') : trans('Trials'));
      this.node.append(title, this._summary, this._drawings, this._table.node);
    }
    return this._table;
  }
}

function summary(tuning: ITuning, context: IContext): string {
  const { trans } = context;
  const ended = tuning.trials.filter(trial => trial.ended !== null).length;
  const parts = [
    tuning.scaling
      ? trans('%1 of %2 sizes have ended', ended, tuning.max_jobs)
      : trans('%1 of %2 trials have ended', ended, tuning.max_jobs)
  ];
  for (const [state, text] of [
    ['running', trans('running')],
    ['pruned', trans('pruned')],
    ['failed', trans('failed')]
  ]) {
    const number = tuning.trials.filter(trial => trial.state === state).length;
    if (number) {
      parts.push(`${number} ${text}`);
    }
  }
  const best = tuning.trials.find(trial => trial.number === tuning.best);
  if (best && !tuning.scaling) {
    parts.push(trans('best: %1', told(best, trans)));
  }
  return parts.join(' · ');
}
