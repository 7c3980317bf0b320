/** From a run back to its cell: show it, run it again, or put its code into a new one. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';
import { type INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { IRunInfo } from './run/source';
import type { Trans } from './run/trans';

/** Stands in a run's flags for a value that was not kept. */
const LEFT_OUT = '…';

export class CellActions {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _tracker: INotebookTracker | null,
    private readonly _trans: Trans
  ) {}

  /** Run the run's cell once more where it still says the same, else its code in a new cell. */
  async again(run: IRunInfo): Promise<void> {
    const panel = await this._panel(run);
    const at = cellOf(panel, run);
    if (at !== null && (run.line === null || sourceAt(panel, at).includes(run.source.trim()))) {
      this._select(panel, at);
    } else {
      this._insert(panel, at, this._textOf(run, panel, at));
      if (run.line?.includes(LEFT_OUT)) {
        throw new Error(
          this._trans('A value of this run was not stored. Replace %1 in the new cell.', LEFT_OUT)
        );
      }
    }
    await NotebookActions.run(panel.content, panel.sessionContext);
  }

  /** The code in a new cell below, with the caret in it. */
  async change(run: IRunInfo): Promise<void> {
    const panel = await this._panel(run);
    const at = cellOf(panel, run);
    this._insert(panel, at, this._textOf(run, panel, at));
    panel.content.mode = 'edit';
    panel.content.activeCell?.editor?.setCursorPosition({
      line: run.line === null ? 0 : 1,
      column: 0
    });
    panel.content.activeCell?.editor?.focus();
  }

  /** Open the prompt of the ranks that wait, in a new cell. While the kernel is busy, the cell waits. */
  async debug(run: IRunInfo): Promise<void> {
    const panel = await this._panel(run);
    this._insert(panel, cellOf(panel, run), `%dist debug ${run.id}`);
    if (panel.sessionContext.session?.kernel?.status === 'idle') {
      await NotebookActions.run(panel.content, panel.sessionContext);
    }
  }

  async showCell(run: IRunInfo): Promise<void> {
    const panel = await this._panel(run);
    const at = cellOf(panel, run);
    if (at === null) {
      throw new Error(this._trans('%1 no longer contains this cell.', panel.context.path));
    }
    this._select(panel, at);
  }

  private _textOf(run: IRunInfo, panel: NotebookPanel, at: number | null): string {
    if (typeof run.line === 'string') {
      return `${`%%distribute ${run.line}`.trimEnd()}\n${run.source}`;
    }
    if (at !== null) {
      return sourceAt(panel, at);
    }
    throw new Error(
      this._trans('%2 no longer contains the cell that called %1.', run.source, panel.context.path)
    );
  }

  /** The run's notebook, opened; for a run without one the notebook in front. */
  private async _panel(run: IRunInfo): Promise<NotebookPanel> {
    const path = run.notebook && contentsPath(run.notebook);
    let panel = path
      ? this._tracker?.find(one => one.context.path === path)
      : this._tracker?.currentWidget;
    if (!panel && path) {
      const asked = { path, factory: 'Notebook' };
      panel = (await this._app.commands.execute('docmanager:open', asked)) as NotebookPanel;
    }
    if (!panel) {
      throw new Error(
        this._trans('No notebook is open. Open the notebook for the new cell first.')
      );
    }
    await panel.context.ready;
    await panel.sessionContext.ready;
    this._app.shell.activateById(panel.id);
    return panel;
  }

  private _select(panel: NotebookPanel, at: number): void {
    const notebook = panel.content;
    notebook.deselectAll();
    notebook.activeCellIndex = at;
    notebook.mode = 'command';
    const cell = notebook.activeCell;
    if (cell) {
      void notebook.scrollToCell(cell, 'center');
    }
    notebook.activate();
  }

  private _insert(panel: NotebookPanel, after: number | null, source: string): void {
    const shared = panel.content.model?.sharedModel;
    if (!shared) {
      return;
    }
    const at = (after ?? shared.cells.length - 1) + 1;
    shared.insertCell(at, { cell_type: 'code', source, metadata: {} });
    this._select(panel, at);
  }
}

/** Where a cell is that shows the run, else one that holds its code. */
function cellOf(panel: NotebookPanel, run: IRunInfo): number | null {
  const { widgets } = panel.content;
  const code = run.source.trim();
  const shows = widgets.findIndex(
    cell =>
      cell.model.type === 'code' &&
      JSON.stringify(cell.model.toJSON().outputs ?? []).includes(run.id)
  );
  const found =
    shows >= 0 || run.line === null || run.line === undefined
      ? shows
      : widgets.findIndex(cell => cell.model.sharedModel.getSource().trim().endsWith(code));
  return found < 0 ? null : found;
}

function sourceAt(panel: NotebookPanel, at: number): string {
  return panel.content.widgets[at].model.sharedModel.getSource();
}

/** A notebook's path as the server's contents have it. The kernel knows where it lies on the disk. */
export function contentsPath(file: string, root = PageConfig.getOption('serverRoot')): string {
  // The server shortens the home folder.
  const home = /^(\/root|\/home\/[^/]+|\/Users\/[^/]+)(?=\/)/.exec(file)?.[0] ?? '';
  for (const folder of [root, root.replace(/^~/, home)].map(one => one.replace(/\/$/, ''))) {
    if (folder && file.startsWith(`${folder}/`)) {
      return file.slice(folder.length + 1);
    }
  }
  const inside = root.startsWith('~/') ? file.indexOf(`${root.slice(1)}/`) : -1;
  return inside < 0 ? file.replace(/^\//, '') : file.slice(inside + root.length);
}
