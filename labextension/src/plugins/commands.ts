/** The commands, and their entries in the palette. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { addCommands } from '../commands';
import { IDistributed, IDistributedPanel, IRunOpener } from '../tokens';

export const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-dist:commands',
  description: 'Adds commands for clusters and distributed runs.',
  autoStart: true,
  requires: [IDistributed, IRunOpener, IDistributedPanel],
  optional: [ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    dist: IDistributed,
    opener: IRunOpener,
    panel: IDistributedPanel,
    palette: ICommandPalette | null
  ) => {
    const category = dist.trans.__('Distributed');
    for (const command of addCommands(app.commands, dist, opener, panel)) {
      palette?.addItem({ command, category });
    }
  }
};
