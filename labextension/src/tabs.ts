/** The tabs: one for each open run, one for each comparison. */
import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IStateDB } from '@jupyterlab/statedb';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { ServerRunSource } from './api';
import { labBundles } from './bundles';
import { CellActions } from './cellactions';
import { compareIcon, distributedIcon, tableIcon } from './icons';
import type { IRunActions } from './run/about';
import { keepKeys } from './run/keys';
import { Places } from './places';
import { RunMenu } from './runmenu';
import type { IDisposable, IRunSummary } from './run/source';
import { translating } from './run/trans';
import type { RunLists } from './model/runlists';
import type { IServer } from './model/server';
import { TableStore } from './table/state';
import type { IDistributed, IRunOpener } from './tokens';

const TAB = 'jupyter-dist:tab';
/** In the place of runs' ids: the tab is the table of all runs. */
const ALL = 'all-runs';

type View = IDisposable & { node: HTMLElement };

/** A plain view in a widget, once its code is there. */
class ViewHost extends Widget {
  private _view: View | null = null;

  constructor(
    readonly ids: readonly string[],
    make: () => Promise<View>
  ) {
    super();
    this.addClass('jpd-tab');
    const keys = keepKeys(this.node);
    this.disposed.connect(() => keys.dispose());
    void make().then(view => {
      if (this.isDisposed) {
        view.dispose();
      } else {
        this._view = view;
        this.node.appendChild(view.node);
      }
    });
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._view?.dispose();
      super.dispose();
    }
  }
}

export class RunTabs implements IRunOpener {
  private readonly _tracker = new WidgetTracker<MainAreaWidget<ViewHost>>({
    namespace: 'jupyter-dist'
  });
  private readonly _trans: TranslationBundle;
  private readonly _server: IServer;
  private readonly _lists: RunLists;
  private readonly _menu: RunMenu;

  constructor(
    private readonly _app: JupyterFrontEnd,
    dist: IDistributed,
    /** Notebook 7 has room for one document in `main`. */
    private readonly _area: 'main' | 'down',
    private readonly _notebooks: INotebookTracker | null,
    private readonly _rendermime: IRenderMimeRegistry,
    private readonly _db: IStateDB | null
  ) {
    this._trans = dist.trans;
    this._server = dist.server;
    this._lists = dist.lists;
    const cells = new CellActions(_app, _notebooks, translating(dist.trans));
    this._menu = new RunMenu(_app, dist, this, cells);
    _app.commands.addCommand(TAB, {
      label: this._trans.__('Open a Tab of Runs'),
      isVisible: () => false,
      execute: ({ ids }) => {
        const known = Array.isArray(ids) ? ids.map(String) : [];
        if (known.length) {
          this._show(known);
        }
      },
      describedBy: {
        args: {
          type: 'object',
          properties: { ids: { type: 'array', items: { type: 'string' } } },
          required: ['ids']
        }
      }
    });
  }

  restore(restorer: ILayoutRestorer): void {
    void restorer.restore(this._tracker, {
      command: TAB,
      args: tab => ({ ids: [...tab.content.ids] }),
      name: tab => tab.content.ids.join('+')
    });
  }

  open(id: string): void {
    this._show([id]);
  }

  compare(ids: readonly string[]): void {
    this._show(ids);
  }

  menu: IRunOpener['menu'] = (...args) => this._menu.openFor(...args);

  table(): void {
    this._show([ALL]);
  }

  private _show(ids: readonly string[]): void {
    const known = this._tracker.find(tab => tab.content.ids.join() === ids.join());
    const tab = known ?? this._make(ids);
    if (!tab.isAttached) {
      tab.toggleClass('jpd-tab-down', this._area === 'down');
      this._app.shell.add(tab, this._area, { type: 'Distributed Run' });
    }
    this._app.shell.activateById(tab.id);
  }

  private _make(ids: readonly string[]): MainAreaWidget<ViewHost> {
    if (ids[0] === ALL) {
      return this._makeTable();
    }
    const trans = translating(this._trans);
    const settings = this._app.serviceManager.serverSettings;
    const sources = ids.map(id => new ServerRunSource(id, settings));
    const single = sources.length === 1;
    const places = new Places(this._app, this._notebooks);
    const bundles = labBundles(this._rendermime);
    // Loaded when the first run is shown, as under the cells.
    const make = single
      ? async () => {
          const { RunView } = await import('./run/view');
          return new RunView({
            source: sources[0],
            trans,
            actions: this._actionsOf(ids[0]),
            debug: run => new CellActions(this._app, this._notebooks, trans).debug(run),
            bundles,
            places
          });
        }
      : async () => {
          const { CompareView } = await import('./compare');
          const environment = (id: string) => this._server.environment(id);
          return new CompareView({ sources, trans, environment });
        };
    const tab = this._tab(ids, make);
    const names = new Map<string, string>();
    // Also another page may give a run its name.
    const tell = ({ id, name }: IRunSummary) => {
      names.set(id, name);
      const told = [...new Set(ids.flatMap(id => names.get(id) ?? []))].join(', ');
      tab.title.label = single ? told : this._trans.__('Compare %1', told);
    };
    const watches = sources.map(source =>
      source.watch(change => change.kind === 'run' && tell(change.run))
    );
    // Of a run that others watch already, nothing is told before it changes. What was told meanwhile is newer.
    const first = (run: IRunSummary) => {
      if (!names.has(run.id)) {
        tell(run);
      }
    };
    sources.forEach(source => void source.run().then(first, () => undefined));
    tab.disposed.connect(() => watches.forEach(watch => watch.dispose()));
    tab.title.icon = single ? distributedIcon : compareIcon;
    tab.title.label = single ? this._trans.__('Run') : this._trans.__('Compare');
    tab.title.caption = ids.join('\n');
    return tab;
  }

  private _actionsOf(id: string): IRunActions {
    const cells = new CellActions(this._app, this._notebooks, translating(this._trans));
    return {
      say: async change => {
        await this._server.about(id, change);
      },
      environment: () => this._server.environment(id),
      again: run => cells.again(run),
      change: run => cells.change(run),
      showCell: run => cells.showCell(run)
    };
  }

  private _makeTable(): MainAreaWidget<ViewHost> {
    const store = new TableStore(this._db);
    const tab = this._tab([ALL], async () => {
      const [{ RunsTable }, state] = await Promise.all([import('./table/view'), store.read()]);
      return new RunsTable({
        state,
        store,
        server: this._server,
        lists: this._lists,
        trans: translating(this._trans),
        open: id => this.open(id),
        compare: ids => this.compare(ids),
        menu: this.menu
      });
    });
    tab.title.icon = tableIcon;
    tab.title.label = this._trans.__('Runs');
    tab.title.caption = this._trans.__('All distributed runs');
    return tab;
  }

  private _tab(ids: readonly string[], make: () => Promise<View>): MainAreaWidget<ViewHost> {
    const tab = new MainAreaWidget({ content: new ViewHost(ids, make) });
    tab.toolbar.hide(); // it is empty
    tab.id = `jupyter-dist-${ids.join('-')}`;
    tab.title.closable = true;
    void this._tracker.add(tab);
    return tab;
  }
}
