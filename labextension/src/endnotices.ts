/** Says that a run has ended, to whoever looks elsewhere: on the page, and beyond it where the browser allows. */
import { Notification as Toast } from '@jupyterlab/apputils';
import { ended, type IRunSummary } from './run/source';
import { stateName } from './run/context';
import { duration } from './run/format';
import { translating } from './run/trans';
import type { RunsModel } from './model/runs';
import type { IDistributed, IRunOpener } from './tokens';

/** Of a run that took less, nobody has looked away. */
const LEAST_S = 10;
const SHOWN_MS = 15_000;

export interface IEndNoticesOptions {
  runs: RunsModel;
  dist: IDistributed;
  opener: IRunOpener;
  /** Whether the user wants them. */
  wanted: () => boolean;
}

export class EndNotices {
  /** The runs that were seen to go on. */
  private readonly _alive = new Set<string>();

  constructor(private readonly _options: IEndNoticesOptions) {
    _options.runs.changed.connect(this._update, this);
    this._update();
  }

  private _update(): void {
    for (const run of this._options.runs.runs) {
      if (!ended(run.state)) {
        this._alive.add(run.id);
      } else if (this._alive.delete(run.id)) {
        this._tell(run);
      }
    }
  }

  private _tell(run: IRunSummary): void {
    const took = (run.ended ?? run.host_time) - (run.started ?? run.created);
    // Who has stopped it knows, and so does who sees it.
    if (!this._options.wanted() || run.state === 'stopped' || took < LEAST_S || isSeen(run.id)) {
      return;
    }
    const { dist, opener } = this._options;
    const { trans } = dist;
    const state = stateName(run.state, translating(trans)).toLowerCase();
    const text = trans.__('%1: %2 after %3', run.name, state, duration(took));
    const why = run.state === 'succeeded' ? '' : (run.reason ?? '');
    const open = () => opener.open(run.id);
    const actions: Toast.IAction[] = [{ label: trans.__('Show'), callback: open }];
    if (permission() === 'default') {
      actions.push({
        label: trans.__('Also notify me outside of this page'),
        callback: () => void window.Notification.requestPermission()
      });
    }
    const options = { actions, autoClose: SHOWN_MS };
    if (run.state === 'succeeded') {
      Toast.success(text, options);
    } else {
      Toast.error(why ? `${text}\n${why}` : text, options);
    }
    if (permission() === 'granted' && (document.hidden || !document.hasFocus())) {
      // The same tag: of several pages one is enough.
      const outside = new window.Notification(text, { body: why, tag: `jupyter-dist-${run.id}` });
      outside.onclick = () => {
        window.focus();
        open();
        outside.close();
      };
    }
  }
}

function permission(): NotificationPermission {
  // Without https there is none.
  return 'Notification' in window ? window.Notification.permission : 'denied';
}

/** Whether a view of the run is in sight of somebody. */
export function isSeen(id: string): boolean {
  if (document.hidden || !document.hasFocus()) {
    return false;
  }
  return [...document.querySelectorAll<HTMLElement>('.jpd-run')].some(node => {
    const { top, bottom, width } = node.getBoundingClientRect();
    return node.dataset.run === id && width > 0 && bottom > 0 && top < window.innerHeight;
  });
}
