/** Put a ready `%%distribute` cell below the active one. */
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { ITarget } from './clusters';

const LOAD = '%load_ext jupyter_dist';

/** The text of a cell that runs on a cluster or backend. */
export function cellFor(target: ITarget): string {
  return [
    `%%distribute --${target.kind} ${target.name}`,
    'import jupyter_dist as dist',
    '',
    'print(f"rank {dist.rank()} of {dist.world_size()}")'
  ].join('\n');
}

/** A cell for a session that runs. */
export function sessionCell(name: string): string {
  return `%%distribute --session ${name}\n`;
}

/** A first cell, which prints a line from each of two processes. */
export const FIRST_CELL = [
  '%%distribute -np 2',
  'import jupyter_dist as dist',
  '',
  'print(f"rank {dist.rank()} of {dist.world_size()}")'
].join('\n');

/** Insert a cell, and one that loads the magics where it needs them and the notebook has none. The new cell is then
 * active and its body selected: what is typed takes the place of it. */
export async function insertSource(panel: NotebookPanel, source: string): Promise<void> {
  const notebook = panel.content;
  const shared = notebook.model?.sharedModel;
  if (!shared) {
    return;
  }
  const loads = /^\s*%(load|reload)_ext\s+jupyter_dist\b/m;
  const sources = shared.cells.filter(cell => cell.cell_type === 'code').map(cell => cell.source);
  const loaded = !/^%%?dist/.test(source) || sources.some(one => loads.test(one));
  const texts = [...(loaded ? [] : [LOAD]), source];
  const active = notebook.activeCellIndex;
  const activeCell = shared.cells[active];
  // An empty cell is there to be filled.
  const empty = activeCell?.cell_type === 'code' && !activeCell.source.trim();
  const at = active + (empty ? 0 : 1);
  shared.transact(() => {
    if (empty) {
      shared.deleteCell(active);
    }
    shared.insertCells(
      at,
      texts.map(text => ({ cell_type: 'code', source: text, metadata: {} }))
    );
  });
  notebook.activeCellIndex = at + texts.length - 1;
  notebook.deselectAll();
  notebook.mode = 'edit';
  const cell = notebook.activeCell;
  if (!cell) {
    return;
  }
  await notebook.scrollToCell(cell, 'auto');
  // A cell out of sight has no editor before it was drawn.
  await cell.ready;
  if (cell.isDisposed || notebook.activeCell !== cell) {
    return;
  }
  cell.editor?.focus();
  const { start, end } = bodyOf(source);
  cell.editor?.setSelection({ start: { ...start }, end: { ...end } });
}

interface IPlace {
  line: number;
  column: number;
}

/** What comes after the line of a cell's magic, up to the end; of another cell, its end. */
export function bodyOf(source: string): { start: IPlace; end: IPlace } {
  const lines = source.split('\n');
  const end = { line: lines.length - 1, column: lines[lines.length - 1].length };
  return { start: source.startsWith('%%') && lines.length > 1 ? { line: 1, column: 0 } : end, end };
}
