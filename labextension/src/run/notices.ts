/** What is said above a run that is not as it should be. */
import { notice } from './failure';
import { capital } from './format';
import { ended, type IRunInfo, type RunMissing } from './source';
import type { Trans } from './trans';

/** What a run's state does not say. */
export interface ICondition {
  /** It was removed. */
  gone: boolean;
  /** The other side is heard. */
  online: boolean;
  /** Says that its ranks stall. */
  stall: HTMLElement | null;
}

/** Notices of a run, most urgent first. */
export function noticesOf(
  run: IRunInfo,
  { gone, online, stall }: ICondition,
  trans: Trans
): HTMLElement[] {
  const nodes: HTMLElement[] = [];
  if (gone) {
    nodes.push(
      notice('warning', trans('This run was removed'), trans('The view shows what it read before.'))
    );
  }
  if (!online) {
    nodes.push(
      notice(
        'info',
        trans('No connection'),
        trans('The run continues. The view reconnects automatically.')
      )
    );
  }
  if (stall) {
    nodes.push(stall);
  }
  if (run.state === 'unwatched') {
    nodes.push(
      notice(
        'warning',
        trans('No supervisor'),
        capital(run.reason ?? trans('its supervisor is gone')),
        trans(
          'The ranks may still be running, but their output is not shown. Stop ends the ranks. %1 starts a new supervisor.',
          `%dist attach ${run.id}`
        )
      )
    );
  }
  if (run.state === 'lost') {
    nodes.push(
      notice(
        'warning',
        trans('The run is lost'),
        capital(run.reason ?? trans('its supervisor is gone')),
        trans('The output of its ranks is shown below. Its files are in %1', run.path)
      )
    );
  } else if (run.reason && ended(run.state) && run.state !== 'failed') {
    nodes.push(notice('info', capital(run.reason)));
  }
  for (const note of run.notes.slice(0, 5)) {
    nodes.push(notice('info', note));
  }
  return nodes;
}

/** Why there is no such run. */
export function missing(error: RunMissing, trans: Trans): string {
  const where = error.root
    ? trans('The folder %1 was searched.', error.root)
    : trans('The runs of this server were searched.');
  const why = trans(
    'The run may have been removed. Or its kernel uses another data directory or another machine.'
  );
  return `${where} ${why}`;
}
