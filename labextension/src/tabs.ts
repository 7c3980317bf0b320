/** The tabs: one for each open run, one for each comparison. */
import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { ServerRunSource } from './api';
import { compareIcon, distributedIcon } from './icons';
import type { IDisposable } from './run/source';
import { translating } from './run/trans';
import type { IRunOpener } from './tokens';

const TAB = 'jupyter-dist:tab';

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

  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _trans: TranslationBundle,
    /** Notebook 7 has room for one document in `main`. */
    private readonly _area: 'main' | 'down'
  ) {
    _app.commands.addCommand(TAB, {
      label: _trans.__('Open a Tab of Runs'),
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
    const trans = translating(this._trans);
    const settings = this._app.serviceManager.serverSettings;
    const sources = ids.map(id => new ServerRunSource(id, settings));
    const single = sources.length === 1;
    // Loaded when the first run is shown, as under the cells.
    const make = single
      ? async () => new (await import('./run/view')).RunView({ source: sources[0], trans })
      : async () => new (await import('./compare')).CompareView({ sources, trans });
    const tab = new MainAreaWidget({ content: new ViewHost(ids, make) });
    tab.toolbar.hide(); // it is empty
    tab.id = `jupyter-dist-${ids.join('-')}`;
    tab.title.icon = single ? distributedIcon : compareIcon;
    tab.title.closable = true;
    tab.title.label = single ? this._trans.__('Run') : this._trans.__('Compare');
    tab.title.caption = ids.join('\n');
    void Promise.all(sources.map(source => source.run()))
      .then(runs => {
        const names = [...new Set(runs.map(run => run.name))].join(', ');
        tab.title.label = single ? names : this._trans.__('Compare %1', names);
      })
      .catch(() => undefined); // the view says why
    void this._tracker.add(tab);
    return tab;
  }
}
