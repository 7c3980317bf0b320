/** The panel "Distributed": its two sections, their toolbars, and what their buttons do. */
import { Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import type { ITranslator } from '@jupyterlab/translation';
import {
  addIcon,
  PanelWithToolbar,
  ReactWidget,
  refreshIcon,
  SidePanel,
  ToolbarButton,
  UseSignal
} from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import type { AccordionPanel, Widget } from '@lumino/widgets';
import * as React from 'react';
import { compareIcon, distributedIcon, tableIcon } from '../icons';
import type { IClusterData } from '../model/server';
import { keepKeys } from '../run/keys';
import type { IDistributed, IRunOpener } from '../tokens';
import { attempt, changeSession, mayDiscard, removeCluster, removeRun, stopRun } from './actions';
import { CardMenu } from './cardmenu';
import { ClustersSection, type ITarget } from './clusters';
import { ClusterForm } from './form';
import { cellFor, FIRST_CELL, insertSource, sessionCell } from './insert';
import { RunsSection } from './runs';
import { Sessions } from './sessions';

/** Heights of the sections: the runs get more, but while the form is open. */
const WITH_CARDS = [2, 3];
const WITH_FORM = [5, 1];

const LOOK_FOR_CARD_MS = 50;

interface IEditing {
  key: number;
  name: string;
  data: IClusterData;
  oldName: string | null;
}

export class DistributedPanel extends SidePanel {
  private readonly _clusters: PanelWithToolbar;
  private readonly _runs: PanelWithToolbar;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _menu: CardMenu;
  private _editing: IEditing | null = null;
  private _forms = 0;
  /** The form has values that are not saved. */
  private _typed = false;
  private _heights: number[] | null = null;
  private _comparing = false;
  private _showBackends = true;

  constructor(
    private readonly _dist: IDistributed,
    private readonly _opener: IRunOpener,
    translator: ITranslator,
    /** Makes a notebook with a first cell. */
    private readonly _example: () => void
  ) {
    super({ translator });
    const { trans, runs, clusters, notebooks } = _dist;
    this.id = 'jupyter-dist-sidebar';
    this.addClass('jpd-panel');
    this.title.icon = distributedIcon;
    this.title.caption = trans.__('Distributed');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Distributed'));
    this._menu = new CardMenu(this, _dist, _opener);

    this._clusters = this._section(trans.__('Clusters'), () => this._drawClusters());
    this._clusters.toolbar.addItem(
      'new',
      new ToolbarButton({
        icon: addIcon,
        tooltip: trans.__('New cluster'),
        onClick: () => void this.edit(null)
      })
    );
    this._runs = this._section(trans.__('Runs'), () => this._drawRuns());
    this._runs.toolbar.addItem(
      'table',
      new ToolbarButton({
        icon: tableIcon,
        tooltip: trans.__('Show runs as a table'),
        onClick: () => this._opener.table()
      })
    );
    this._runs.toolbar.addItem(
      'compare',
      new ToolbarButton({
        icon: compareIcon,
        tooltip: trans.__('Select runs to compare'),
        onClick: () => this.startComparing(!this._comparing)
      })
    );
    for (const [section, refresh] of [
      [this._clusters, () => clusters.refresh()],
      [this._runs, () => runs.refresh()]
    ] as const) {
      section.toolbar.addItem(
        'refresh',
        new ToolbarButton({
          icon: refreshIcon,
          tooltip: trans.__('Refresh'),
          onClick: () => void refresh()
        })
      );
      this.addWidget(section);
    }
    this._accordion.setRelativeSizes(WITH_CARDS);

    runs.changed.connect(this._redraw, this);
    clusters.changed.connect(this._redraw, this);
    notebooks.changed.connect(this._redraw, this);
    notebooks.changed.connect(() => clusters.outdated && this.handleEvent(), this);
    notebooks.clustersMayHaveChanged.connect(this.handleEvent, this);
    const keys = keepKeys(this.node);
    this.disposed.connect(() => keys.dispose());
    // Who comes back to this page may have edited the file elsewhere.
    window.addEventListener('focus', this);
  }

  /** Backends beside the saved clusters. */
  set showBackends(show: boolean) {
    this._showBackends = show;
    this._redraw();
  }

  /** Open the form: for a saved cluster by its name, or for a new one. */
  async edit(
    name: string | null,
    backend = 'local',
    options: Record<string, unknown> = {}
  ): Promise<void> {
    if (!(await this._mayLeave())) {
      return;
    }
    const cluster = this._dist.clusters.clusters.find(one => one.name === name);
    const key = ++this._forms;
    this._typed = false;
    this._editing = cluster
      ? { key, name: cluster.name, oldName: cluster.name, data: cluster }
      : { key, name: '', oldName: null, data: { backend, options } };
    this._expand(this._clusters);
    if (!this._heights) {
      this._heights = this._accordion.relativeSizes();
      this._accordion.setRelativeSizes(WITH_FORM);
    }
    this._redraw();
  }

  startComparing(on: boolean): void {
    this._comparing = on;
    if (!on) {
      this._dist.runs.clearSelected();
    }
    this._expand(this._runs);
    this._redraw();
  }

  /** Show the cards and focus the first. */
  async focusClusters(): Promise<void> {
    if (await this._mayLeave()) {
      this._showCards();
    }
  }

  /** Whether the form may be closed. */
  private async _mayLeave(): Promise<boolean> {
    return !this._editing || !this._typed || (await mayDiscard(this._dist.trans));
  }

  private _showCards(): void {
    this._closeForm();
    this._expand(this._clusters);
    this._redraw();
    // Shown for the first time the panel has no card yet. A user who goes on meanwhile keeps the focus.
    const over = new AbortController();
    const { signal } = over;
    for (const type of ['keydown', 'pointerdown']) {
      document.addEventListener(type, () => over.abort(), { capture: true, signal });
    }
    const focus = () => {
      const card = this._clusters.node.querySelector<HTMLElement>('[data-main][tabindex="0"]');
      if (signal.aborted || !this.isVisible) {
        over.abort();
      } else if (card) {
        card.focus();
        over.abort();
      } else {
        setTimeout(focus, LOOK_FOR_CARD_MS);
      }
    };
    requestAnimationFrame(focus);
  }

  insert(target: ITarget): void {
    this.install(cellFor(target));
  }

  /** Insert a cell as it is. */
  install(cell: string): void {
    const { front } = this._dist.notebooks;
    if (front) {
      void insertSource(front, cell);
    }
  }

  /** Use a cluster for the notebook in front; once more: go back to the default. */
  async use(target: ITarget): Promise<void> {
    const { notebooks, trans } = this._dist;
    const panel = notebooks.front;
    if (!panel) {
      Notification.info(trans.__('Open a notebook to use %1 in it.', target.name));
      return;
    }
    const name = notebooks.of(panel).name === target.name ? null : target.name;
    const failed = trans.__(
      '%1 does not use %2.',
      PathExt.basename(panel.context.path),
      target.name
    );
    await attempt(() => notebooks.use(panel, name), failed, trans);
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    window.removeEventListener('focus', this);
    this._menu.dispose();
    this._dist.runs.active = false;
    Signal.clearData(this);
    super.dispose();
  }

  /** The file of clusters may have changed, or the folder in which backends look. */
  handleEvent(): void {
    if (this.isVisible) {
      void this._dist.clusters.refresh();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    requestAnimationFrame(() => this._correctHeights());
    this._dist.runs.active = true;
    void this._dist.clusters.refresh();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this.onAfterShow(message);
    }
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._dist.runs.active = false;
  }

  private _section(title: string, draw: () => React.ReactElement): PanelWithToolbar {
    const section = new PanelWithToolbar();
    section.addClass('jpd-sb-section-panel');
    section.title.label = title;
    const body = ReactWidget.create(<UseSignal signal={this._changed}>{draw}</UseSignal>);
    body.addClass('jpd-sb-body');
    section.addWidget(body);
    return section;
  }

  private get _accordion(): AccordionPanel {
    return this.content as AccordionPanel;
  }

  private _expand(section: Widget): void {
    this._accordion.expand(this._accordion.widgets.indexOf(section));
  }

  /** JupyterLab saves and restores equal heights for a panel that had no size yet. */
  private _correctHeights(): void {
    const [first, second] = this.isDisposed ? [] : this._accordion.relativeSizes();
    if (first === second && !this._heights) {
      this._accordion.setRelativeSizes(WITH_CARDS);
    }
  }

  private _closeForm(): void {
    this._editing = null;
    this._typed = false;
    if (this._heights) {
      this._accordion.setRelativeSizes(this._heights);
      this._heights = null;
    }
  }

  private _redraw(): void {
    this._changed.emit();
  }

  private _drawClusters(): React.ReactElement {
    const { clusters, notebooks, trans } = this._dist;
    if (this._editing) {
      const { key, name, data, oldName } = this._editing;
      return (
        <ClusterForm
          key={key}
          backends={clusters.backends}
          name={name}
          data={data}
          oldName={oldName}
          trans={trans}
          mayDiscard={() => mayDiscard(trans)}
          onTyped={typed => (this._typed = typed)}
          ask={(backend, options) => clusters.meaning(backend, options)}
          onSave={async (newName, newData, test) => {
            await clusters.save(newName, newData, oldName);
            if (oldName !== null && newName !== oldName) {
              notebooks.renamed(oldName, newName);
            }
            // Another form may have taken its place meanwhile.
            if (this._editing?.key === key) {
              this._closeForm();
            }
            this._redraw();
            if (test) {
              void clusters.startTest(newName);
            }
          }}
          onCancel={() => this._showCards()}
          onInstall={notebooks.front && (cell => this.install(cell))}
        />
      );
    }
    const choice = notebooks.of(notebooks.front);
    return (
      <ClustersSection
        model={clusters}
        trans={trans}
        notebook={notebooks.front ? PathExt.basename(notebooks.front.context.path) : null}
        used={choice.name}
        pending={choice.pending}
        showBackends={this._showBackends}
        onUse={target => void this.use(target)}
        onInsert={target => this.insert(target)}
        onMenu={(target, anchor) => this._menu.openFor(target, anchor)}
        onDelete={target => void removeCluster(clusters, target.name, trans)}
        onNew={() => void this.edit(null)}
        onSaveSite={(backend, options) => void this.edit(null, backend, options)}
        onOpenRun={id => this._opener.open(id)}
      />
    );
  }

  private _drawRuns(): React.ReactElement {
    const { runs, notebooks, trans } = this._dist;
    const { root } = notebooks.of(notebooks.front);
    return (
      <>
        <Sessions
          sessions={runs.sessions}
          trans={trans}
          onInsert={notebooks.front && (name => this.install(sessionCell(name)))}
          onRestart={name => void changeSession(runs, name, 'restart', trans)}
          onStop={name => void changeSession(runs, name, 'close', trans)}
        />
        <RunsSection
          model={runs}
          trans={trans}
          comparing={this._comparing}
          elsewhere={root !== null && runs.root !== null && root !== runs.root ? root : null}
          onOpen={run => this._opener.open(run.id)}
          onStop={run => void stopRun(runs, run, trans)}
          onRemove={run => void removeRun(runs, run, trans)}
          onRename={(run, name) => {
            const failed = trans.__('%1 was not renamed.', run.name);
            void attempt(() => runs.rename(run.id, name), failed, trans);
          }}
          onCompare={ids => {
            this._opener.compare([...ids]);
            this.startComparing(false);
          }}
          onStartCompare={() => {
            this._comparing = true;
          }}
          onEndCompare={() => this.startComparing(false)}
          onMenu={(chosen, at, rename) => this._opener.menu(chosen, at, rename)}
          onFirstCell={notebooks.front && (() => this.install(FIRST_CELL))}
          onExample={() => this._example()}
        />
      </>
    );
  }
}
