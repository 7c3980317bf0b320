/** Launch a Ray cluster from its file, attach to it, take it down: each is a run, which is shown at once. */
import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ClustersModel } from '../model/clusters';
import type { LaunchVerb } from '../model/server';
import type { IRunOpener } from '../tokens';
import { attempt } from './actions';

/** Ask for a file, and launch the cluster that it describes. */
export async function launchCluster(
  model: ClustersModel,
  opener: IRunOpener,
  trans: TranslationBundle
): Promise<void> {
  const { value } = await InputDialog.getText({
    title: trans.__('Launch a Ray Cluster'),
    label: trans.__('Path of the cluster-launcher file on the server'),
    okLabel: trans.__('Launch')
  });
  const file = value?.trim();
  if (file) {
    await begin(model, opener, 'up', file, trans.__('%1 was not launched.', file), trans);
  }
}

/** Open a way to a cluster, and show what its autoscaler does. */
export async function attachCluster(
  model: ClustersModel,
  opener: IRunOpener,
  name: string,
  trans: TranslationBundle
): Promise<void> {
  await begin(model, opener, 'attach', name, trans.__('Attaching to %1 failed.', name), trans);
}

/** End a cluster's nodes, after asking. */
export async function takeDown(
  model: ClustersModel,
  opener: IRunOpener,
  name: string,
  trans: TranslationBundle
): Promise<void> {
  const { button } = await showDialog({
    title: trans.__('Take %1 down?', name),
    body: trans.__(
      'Its nodes and everything that runs on them are terminated. The cluster is removed from this list.'
    ),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans.__('Take Down') })
    ]
  });
  if (button.accept) {
    await begin(model, opener, 'down', name, trans.__('%1 was not taken down.', name), trans);
  }
}

async function begin(
  model: ClustersModel,
  opener: IRunOpener,
  verb: LaunchVerb,
  file: string,
  failed: string,
  trans: TranslationBundle
): Promise<void> {
  const run = await attempt(() => model.launch(verb, file), failed, trans);
  if (run !== undefined) {
    opener.open(run);
  }
}
