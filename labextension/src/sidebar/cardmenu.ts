/** The menu of a card in the section "Clusters", for the card it was opened from. */
import { MenuSvg } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import type { IDistributed, IRunOpener } from '../tokens';
import { attempt, removeCluster } from './actions';
import type { ITarget } from './clusters';
import { attachCluster, launchCluster, takeDown } from './launch';

/** What the menu has the panel do. */
export interface ICardActions {
  use(target: ITarget): Promise<void>;
  insert(target: ITarget): void;
  edit(name: string | null, backend?: string): Promise<void>;
  install(cell: string): void;
}

export class CardMenu {
  private readonly _menu: MenuSvg;
  private _target: ITarget = { kind: 'backend', name: 'local' };

  constructor(panel: ICardActions, { clusters, trans }: IDistributed, opener: IRunOpener) {
    const commands = new CommandRegistry();
    this._menu = new MenuSvg({ commands });
    const isCluster = () => this._target.kind === 'cluster';
    const add = (id: string, label: string, execute: () => void, isVisible = () => true) => {
      commands.addCommand(id, {
        label,
        execute,
        isVisible,
        describedBy: { args: { type: 'object', properties: {} } }
      });
      this._menu.addItem({ command: id });
    };
    const name = () => this._target.name;
    const failed = () => trans.__('%1 was not duplicated.', name());
    const wasLaunched = () =>
      isCluster() && Boolean(clusters.clusters.find(one => one.name === name())?.launched_from);
    add(
      'jupyter-dist:card-use',
      trans.__('Use for This Notebook'),
      () => void panel.use(this._target)
    );
    add('jupyter-dist:card-insert', trans.__('Insert Cell'), () => panel.insert(this._target));
    const installing = () => {
      const cluster = clusters.clusters.find(one => isCluster() && one.name === name());
      return clusters.backend(cluster?.backend ?? name())?.install_cell ?? null;
    };
    add(
      'jupyter-dist:card-install',
      trans.__('Insert an Install Cell'),
      () => panel.install(installing() ?? ''),
      () => installing() !== null
    );
    add('jupyter-dist:card-test', trans.__('Test'), () => void clusters.startTest(name()));
    add(
      'jupyter-dist:card-attach',
      trans.__('Attach'),
      () => void attachCluster(clusters, opener, name(), trans),
      wasLaunched
    );
    add(
      'jupyter-dist:card-down',
      trans.__('Take Down…'),
      () => void takeDown(clusters, opener, name(), trans),
      wasLaunched
    );
    add(
      'jupyter-dist:card-new',
      trans.__('New Cluster…'),
      () => void panel.edit(null, name()),
      () => !isCluster()
    );
    add(
      'jupyter-dist:card-launch',
      trans.__('Launch a Cluster from a File…'),
      () => void launchCluster(clusters, opener, trans),
      () => !isCluster() && name() === 'ray'
    );
    add('jupyter-dist:card-edit', trans.__('Edit…'), () => void panel.edit(name()), isCluster);
    add(
      'jupyter-dist:card-duplicate',
      trans.__('Duplicate'),
      () => void attempt(() => clusters.duplicate(name()), failed(), trans),
      isCluster
    );
    add(
      'jupyter-dist:card-delete',
      trans.__('Delete…'),
      () => void removeCluster(clusters, name(), trans),
      isCluster
    );
  }

  openFor(target: ITarget, anchor: DOMRect): void {
    this._target = target;
    this._menu.open(anchor.left, anchor.bottom);
  }

  dispose(): void {
    this._menu.dispose();
  }
}
