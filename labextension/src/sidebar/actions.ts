/** What is done with runs and clusters after asking; shared by the sidebar, commands and menus. */
import { Dialog, Notification, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ClustersModel } from '../model/clusters';
import { explain } from '../model/explain';
import type { RunsModel } from '../model/runs';
import { ended, type IRunSummary } from '../run/source';
import { bytes as size } from '../run/format';

/** Do something; where it fails, say why in a dialog: a notification cuts off what is to be done. */
export async function attempt<T>(
  what: () => Promise<T>,
  failed: string,
  trans: TranslationBundle
): Promise<T | undefined> {
  try {
    return await what();
  } catch (error) {
    void showErrorMessage(failed, explain(error, trans));
    return undefined;
  }
}

/** Stop a run at once; where a stop was asked for already, ask whether to kill it. */
export async function stopRun(
  model: RunsModel,
  run: IRunSummary,
  trans: TranslationBundle
): Promise<void> {
  const kill = model.isStopping(run.id);
  if (kill) {
    const { button } = await showDialog({
      title: trans.__('Kill %1?', run.name),
      body: trans.__(
        'The run was asked to stop and is still running. Killed ranks cannot save anything.'
      ),
      defaultButton: 0,
      buttons: [
        Dialog.cancelButton({ label: trans.__('Wait') }),
        Dialog.warnButton({ label: trans.__('Kill') })
      ]
    });
    if (!button.accept) {
      return;
    }
  }
  await attempt(() => model.stop(run.id, kill), trans.__('%1 was not stopped.', run.name), trans);
}

/** End a session or restart its ranks, after asking: what its ranks hold is lost. */
export async function changeSession(
  model: RunsModel,
  name: string,
  action: 'close' | 'restart',
  trans: TranslationBundle
): Promise<void> {
  const close = action === 'close';
  const { button } = await showDialog({
    title: close
      ? trans.__('Stop the session %1?', name)
      : trans.__('Restart the ranks of %1?', name),
    body: trans.__('All variables on its ranks are lost. The runs of its cells stay.'),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: close ? trans.__('Stop') : trans.__('Restart') })
    ]
  });
  if (button.accept) {
    const failed = trans.__('The session %1 was not changed.', name);
    await attempt(() => model.changeSession(name, action), failed, trans);
  }
}

/** Remove a run from the disk, after asking; returns whether it is gone. */
export async function removeRun(
  model: RunsModel,
  run: IRunSummary,
  trans: TranslationBundle
): Promise<boolean> {
  if (!ended(run.state)) {
    await showDialog({
      title: trans.__('%1 is still running', run.name),
      body:
        run.state === 'unwatched'
          ? trans.__(
              'The run has no supervisor, but its ranks may still be running. Stop the run first: only its folder finds its ranks.'
            )
          : trans.__('Only a run that has ended can be removed. Stop it first.'),
      buttons: [Dialog.okButton({ label: trans.__('OK') })]
    });
    return false;
  }
  const bytes = await model.diskSize(run.id).catch(() => null);
  const { button } = await showDialog({
    title: trans.__('Remove %1?', run.name),
    body:
      bytes === null
        ? trans.__('Its logs, metrics and results are deleted from the disk.')
        : trans.__('Its logs, metrics and results are deleted from the disk: %1.', size(bytes)),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans.__('Remove') })
    ]
  });
  if (!button.accept) {
    return false;
  }
  const freed = await attempt(
    () => model.remove(run.id),
    trans.__('%1 was not removed.', run.name),
    trans
  );
  return freed !== undefined;
}

/** Remove several runs from the disk, after asking once. */
export async function removeRuns(
  model: RunsModel,
  runs: readonly IRunSummary[],
  trans: TranslationBundle
): Promise<void> {
  if (runs.length === 1) {
    await removeRun(model, runs[0], trans);
    return;
  }
  const { button } = await showDialog({
    title: trans.__('Remove %1 runs?', runs.length),
    body: trans.__('Their logs, metrics and results are deleted from the disk.'),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans.__('Remove') })
    ]
  });
  for (const run of button.accept ? runs : []) {
    await attempt(() => model.remove(run.id), trans.__('%1 was not removed.', run.name), trans);
  }
}

/** Remove old runs, after asking for how old. */
export async function cleanRuns(
  model: RunsModel,
  days: number,
  trans: TranslationBundle
): Promise<void> {
  const { button } = await showDialog({
    title: trans.__('Remove old runs?'),
    body: trans._n(
      'All runs that ended more than a day ago are deleted from the disk.',
      'All runs that ended more than %1 days ago are deleted from the disk.',
      days
    ),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans.__('Remove') })
    ]
  });
  if (button.accept) {
    const done = await attempt(() => model.clean(days), trans.__('Nothing was removed.'), trans);
    if (done) {
      const { length } = done.removed;
      Notification.info(
        done.skipped
          ? trans.__('Old runs were removed less than an hour ago.')
          : trans._n(
              '%1 run removed, %2 freed.',
              '%1 runs removed, %2 freed.',
              length,
              size(done.freed_bytes)
            )
      );
    }
  }
}

/** Ask whether the changes in a form are to be lost. */
export async function mayDiscard(trans: TranslationBundle): Promise<boolean> {
  const { button } = await showDialog({
    title: trans.__('Discard the changes?'),
    body: trans.__('The cluster is not saved.'),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep editing') }),
      Dialog.warnButton({ label: trans.__('Discard') })
    ]
  });
  return button.accept;
}

export async function removeCluster(
  model: ClustersModel,
  name: string,
  trans: TranslationBundle
): Promise<void> {
  const { button } = await showDialog({
    title: trans.__('Delete the cluster %1?', name),
    body: trans.__(
      'The cluster is removed from %1. Its runs are kept.',
      model.path || 'clusters.toml'
    ),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans.__('Delete') })
    ]
  });
  if (button.accept) {
    await attempt(() => model.remove(name), trans.__('%1 was not deleted.', name), trans);
  }
}
