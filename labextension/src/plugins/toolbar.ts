/** The cluster of a notebook, in its toolbar. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { CommandIDs } from '../commands';
import { ClusterButton } from '../sidebar/toolbarbutton';
import { readSettings } from '../settings';
import { IDistributed } from '../tokens';

export const toolbar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:toolbar',
  description: 'Shows in the toolbar of a notebook which cluster it uses.',
  autoStart: true,
  requires: [IDistributed],
  optional: [IToolbarWidgetRegistry],
  activate: (app: JupyterFrontEnd, dist: IDistributed, registry: IToolbarWidgetRegistry | null) => {
    // The schema puts the item into the toolbar, where users can move or hide it.
    registry?.addFactory<NotebookPanel>('Notebook', 'jupyter-dist-cluster', panel => {
      const button = new ClusterButton(panel, dist, () => {
        app.shell.activateById(panel.id);
        void app.commands.execute(CommandIDs.chooseCluster);
      });
      void dist.settings?.then(settings => {
        const follow = () => button.setHidden(!readSettings(settings).showInNotebook);
        settings.changed.connect(follow);
        button.disposed.connect(() => settings.changed.disconnect(follow));
        follow();
      });
      return button;
    });
  }
};
