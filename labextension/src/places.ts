/** The way from a frame of a traceback to its line: in a cell of the notebook, or in a file below the server's root. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { CodeEditor } from '@jupyterlab/codeeditor';
import { PageConfig } from '@jupyterlab/coreutils';
import type { INotebookTracker, Notebook, NotebookPanel } from '@jupyterlab/notebook';
import type { IPlace, IPlaces } from './run/framelinks';

const CELL = /^In ?\[(\d+)\]/;
const OPEN = 'docmanager:open';

interface IOpened {
  context?: { ready: Promise<void> };
  content?: { editor?: CodeEditor.IEditor };
}

export class Places implements IPlaces {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _notebooks: INotebookTracker | null,
    private readonly _root = PageConfig.getOption('serverRoot')
  ) {}

  leads({ file, label }: IPlace): boolean {
    return CELL.test(label) ? this._notebooks !== null : this._path(file) !== null;
  }

  async go(place: IPlace, from: HTMLElement, own: boolean): Promise<void> {
    const executed = CELL.exec(place.label);
    if (!executed) {
      await this._open(this._path(place.file) ?? '', place.line);
      return;
    }
    const panel = this._notebooks?.find(known => known.node.contains(from));
    const front = panel ?? this._notebooks?.currentWidget;
    const found = front && cellOf(front, Number(executed[1]), panel && own ? from : null);
    if (!front || !found) {
      throw new Error(
        `No open notebook has the cell ${place.label}. Open the notebook of this run, or run the cell again.`
      );
    }
    this._app.shell.activateById(front.id);
    await reveal(front.content, found, place.line);
  }

  /** The path as the server knows it; null for one that it does not serve. */
  private _path(file: string): string | null {
    const root = this._root.replace(/\/+$/, '');
    return root && file.startsWith(`${root}/`) ? file.slice(root.length + 1) : null;
  }

  private async _open(path: string, line: number | null): Promise<void> {
    const opened = (await this._app.commands.execute(OPEN, { path })) as IOpened | undefined;
    await opened?.context?.ready;
    const editor = opened?.content?.editor;
    if (editor && line !== null) {
      toLine(editor, line);
    }
  }
}

/** The cell with that number; where the run is shown under it, it is that one, whatever it was since. */
function cellOf(panel: NotebookPanel, executed: number, inside: HTMLElement | null): number | null {
  const cells = panel.content.widgets;
  const own = inside ? cells.findIndex(cell => cell.node.contains(inside)) : -1;
  const index =
    own >= 0
      ? own
      : cells.findIndex(({ model }) => {
          const { execution_count: count } = model.sharedModel.toJSON() as {
            execution_count?: unknown;
          };
          return model.type === 'code' && count === executed;
        });
  return index < 0 ? null : index;
}

async function reveal(notebook: Notebook, index: number, line: number | null): Promise<void> {
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  const cell = notebook.activeCell;
  if (!cell) {
    return;
  }
  await notebook.scrollToCell(cell, 'smart');
  await cell.ready;
  notebook.mode = 'edit';
  if (cell.editor && line !== null) {
    toLine(cell.editor, line);
  }
}

/** Select the line and bring it into sight. */
function toLine(editor: CodeEditor.IEditor, line: number): void {
  const at = Math.max(0, Math.min(line, editor.lineCount) - 1);
  const start = { line: at, column: 0 };
  editor.setSelection({ start, end: { line: at, column: (editor.getLine(at) ?? '').length } });
  editor.revealPosition(start);
  editor.focus();
}
