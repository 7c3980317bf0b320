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

/** Insert the cell, and one that loads the magics where the notebook has none; the new cell is then active. */
export function insertCell(panel: NotebookPanel, target: ITarget): void {
  const notebook = panel.content;
  const shared = notebook.model?.sharedModel;
  if (!shared) {
    return;
  }
  const loads = /^\s*%(load|reload)_ext\s+jupyter_dist\b/m;
  const sources = shared.cells.filter(cell => cell.cell_type === 'code').map(cell => cell.source);
  const texts = [...(sources.some(source => loads.test(source)) ? [] : [LOAD]), cellFor(target)];
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
      texts.map(source => ({ cell_type: 'code', source, metadata: {} }))
    );
  });
  notebook.activeCellIndex = at + texts.length - 1;
  notebook.deselectAll();
  notebook.mode = 'edit';
  const cell = notebook.activeCell;
  if (cell) {
    void notebook.scrollToCell(cell, 'auto');
    cell.editor?.focus();
  }
}
