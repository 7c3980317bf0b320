/** What every part of a run view is given. */
import type { Axis } from './xaxis';
import type { IBundleHost } from './bundles';
import type { IRunSource, IRunSummary, State } from './source';
import type { Trans } from './trans';

export interface IContext {
  source: IRunSource;
  trans: Trans;
  /** Aborted when the view is disposed of: every listener, observer and timer hangs on it. */
  signal: AbortSignal;
  /** Say something to those who cannot see it. */
  announce: (text: string) => void;
  /** The view's own element, from which colours are read. */
  root: HTMLElement;
  /** Draws what ranks show that is no picture. */
  bundles: IBundleHost;
  /** What a line of a chart is called; without it by its rank. */
  lineName?: (rank: number) => string;
  /** What charts are drawn over; without it, steps. */
  axis?: () => Axis;
}

export function stateName(state: State, trans: Trans): string {
  switch (state) {
    case 'pending':
      return trans('Pending');
    case 'running':
      return trans('Running');
    case 'unwatched':
      return trans('Unwatched');
    case 'succeeded':
      return trans('Succeeded');
    case 'failed':
      return trans('Failed');
    case 'stopped':
      return trans('Stopped');
    case 'lost':
      return trans('Lost');
    default:
      return String(state); // of a newer server
  }
}

/** The state of a run as views name it: one that has stalled runs no more than by name. */
export function runState(run: Pick<IRunSummary, 'state' | 'stall'>, trans: Trans): string {
  return run.state === 'running' && run.stall ? trans('Stalled') : stateName(run.state, trans);
}

/** Where a run is, and with how many ranks. A tuning run has none of its own. */
export function placeText(
  { backend, world_size }: Pick<IRunSummary, 'backend' | 'world_size'>,
  trans: Trans
): string {
  return world_size ? trans('%1 × %2', backend, world_size) : backend;
}

export function rankCount(count: number, trans: Trans): string {
  return count === 1 ? trans('1 rank') : trans('%1 ranks', count);
}

export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
