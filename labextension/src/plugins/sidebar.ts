/** The panel "Distributed" in the left area. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { CommandIDs } from '../commands';
import { readSettings } from '../settings';
import { DistributedPanel } from '../sidebar/panel';
import { IDistributed, IDistributedPanel, IRunOpener } from '../tokens';

export const sidebar: JupyterFrontEndPlugin<IDistributedPanel> = {
  id: 'jupyter-dist:sidebar',
  description: 'Shows clusters and distributed runs in the left area.',
  autoStart: true,
  provides: IDistributedPanel,
  requires: [IDistributed, IRunOpener],
  optional: [ILayoutRestorer, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    dist: IDistributed,
    opener: IRunOpener,
    restorer: ILayoutRestorer | null,
    translator: ITranslator | null
  ): IDistributedPanel => {
    const panel = new DistributedPanel(
      dist,
      opener,
      translator ?? nullTranslator,
      () => void app.commands.execute(CommandIDs.example)
    );
    restorer?.add(panel, panel.id);
    app.shell.add(panel, 'left', { rank: 300, type: 'Distributed' });
    void dist.settings?.then(settings => {
      const follow = () => {
        panel.showBackends = readSettings(settings).showBackends;
      };
      settings.changed.connect(follow);
      panel.disposed.connect(() => settings.changed.disconnect(follow));
      follow();
    });
    const show = () => app.shell.activateById(panel.id);
    const shown =
      <A extends unknown[]>(act: (...args: A) => void) =>
      (...args: A) => {
        show();
        act(...args);
      };
    return {
      show,
      showClusters: shown(() => void panel.focusClusters()),
      newCluster: shown(() => void panel.edit(null)),
      compare: shown(() => panel.startComparing(true)),
      use: target => panel.use(target),
      insert: target => panel.insert(target)
    };
  }
};
