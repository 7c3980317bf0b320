/** The commands, and their entries in the palette and the launcher. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { addCommands, CommandIDs } from '../commands';
import { IDistributed, IDistributedPanel, IRunOpener } from '../tokens';

export const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:commands',
  description: 'Adds commands for clusters and distributed runs.',
  autoStart: true,
  requires: [IDistributed, IRunOpener, IDistributedPanel],
  optional: [ICommandPalette, ILauncher],
  activate: (
    app: JupyterFrontEnd,
    dist: IDistributed,
    opener: IRunOpener,
    panel: IDistributedPanel,
    palette: ICommandPalette | null,
    launcher: ILauncher | null
  ) => {
    const category = dist.trans.__('Distributed');
    const kernel = () => app.serviceManager.kernelspecs.specs?.default;
    for (const command of addCommands(app.commands, dist, opener, panel, kernel)) {
      palette?.addItem({ command, category });
    }
    launcher?.add({ command: CommandIDs.example, category: dist.trans.__('Notebook'), rank: 100 });
  }
};
