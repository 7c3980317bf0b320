/** Small things that rows and cards show: a state's mark, progress, times. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { runState, stateName as stateTitle } from '../run/context';
import { ended, type IProgress, type IRunSummary, type State } from '../run/source';
import { translating } from '../run/trans';

/** One shape for each state, so that none depends on its colour. */
const SHAPES: Record<State, React.ReactElement> = {
  pending: <circle cx="8" cy="8" r="5" fill="none" strokeDasharray="2.6 2.6" />,
  running: (
    <>
      <circle cx="8" cy="8" r="6" fill="none" opacity="0.35" />
      <path d="M8 2a6 6 0 0 1 6 6" fill="none" className="jpd-sb-mark-arc" />
    </>
  ),
  succeeded: <path d="M2.5 8.5l3.5 3.5 7.5-8" fill="none" />,
  failed: <path d="M3.5 3.5l9 9m0-9l-9 9" fill="none" />,
  stopped: <rect x="4" y="4" width="8" height="8" rx="1" className="jpd-sb-mark-solid" />,
  unwatched: (
    <>
      <path d="M1.8 8c3-5 9.4-5 12.4 0-3 5-9.4 5-12.4 0z" fill="none" />
      <path d="M3 13.5L13 2.5" fill="none" />
    </>
  ),
  lost: (
    <>
      <path d="M5.2 5.8a2.8 2.8 0 1 1 4.6 2.2c-1.2.9-1.8 1.3-1.8 2.6" fill="none" />
      <circle cx="8" cy="13.2" r="1" className="jpd-sb-mark-solid" />
    </>
  )
};

export function StateMark({ state }: { state: State }): React.ReactElement {
  return (
    <svg className="jpd-sb-mark" data-state={state} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[state] ?? SHAPES.lost}
    </svg>
  );
}

export function stateName(state: State, trans: TranslationBundle): string {
  return stateTitle(state, translating(trans)).toLowerCase();
}

/** The state of a run within a text. A run that has stalled is not called running. */
export function stateOf(
  run: Pick<IRunSummary, 'state' | 'stall'>,
  trans: TranslationBundle
): string {
  return runState(run, translating(trans)).toLowerCase();
}

/** Done of all, from 0 to 1; null where the total is unknown. */
export function fraction(progress: IProgress | null): number | null {
  return progress?.total ? Math.min(1, Math.max(0, progress.n / progress.total)) : null;
}

export function ProgressBar(props: { run: IRunSummary; label: string }): React.ReactElement | null {
  const done = fraction(props.run.progress);
  if (done === null || ended(props.run.state)) {
    return null;
  }
  return (
    <div
      className="jpd-sb-bar"
      role="progressbar"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(done * 100)}
    >
      <div style={{ width: `${done * 100}%` }} />
    </div>
  );
}

export function age(seconds: number, trans: TranslationBundle): string {
  if (seconds < 60) {
    return trans.__('just now');
  }
  if (seconds < 3600) {
    return trans.__('%1 min ago', Math.floor(seconds / 60));
  }
  return seconds < 86_400
    ? trans.__('%1 h ago', Math.floor(seconds / 3600))
    : trans.__('%1 d ago', Math.floor(seconds / 86_400));
}

/** How long a run has taken, by its host's clock: ours may be another one. */
export function elapsed(run: IRunSummary, skew_s: number): number {
  return (run.ended ?? Date.now() / 1000 + skew_s) - (run.started ?? run.created);
}

/** The last part of a path. */
export function basename(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Draw again every second while `on`. */
export function useTick(on: boolean): void {
  const [, tick] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    if (!on) {
      return;
    }
    const timer = setInterval(() => {
      if (!document.hidden) {
        tick();
      }
    }, 1000);
    return () => clearInterval(timer);
  }, [on]);
}
