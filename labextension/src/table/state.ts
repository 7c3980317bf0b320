/** What somebody has chosen in the table of runs, kept by the browser. */

const KEY = 'jupyter-dist:runs-table';

export interface ITableState {
  /** null: those that are usual for the runs that are there. */
  columns: string[] | null;
  sort: string;
  down: boolean;
  group: string;
  text: string;
}

export function readState(): ITableState {
  const usual: ITableState = { columns: null, sort: '', down: false, group: '', text: '' };
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<ITableState>;
    return {
      ...usual,
      columns: Array.isArray(kept.columns) ? kept.columns.map(String) : null,
      sort: String(kept.sort ?? ''),
      down: kept.down === true,
      group: String(kept.group ?? '')
    };
  } catch {
    return usual; // a browser that keeps nothing
  }
}

export function writeState({ columns, sort, down, group }: ITableState): void {
  try {
    localStorage.setItem(KEY, JSON.stringify({ columns, sort, down, group }));
  } catch {
    // It is chosen again the next time.
  }
}
