/** What the table of runs shows and how, kept with the other state of JupyterLab's workspace. */
import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { remembered } from '../run/browserstorage';

// Of another namespace than our tabs: JupyterLab takes each value of theirs for a tab, and removes one that is none.
const KEY = 'jupyter-dist-table:state';
/** Where earlier versions kept it, in the browser. */
const OLD_KEY = 'jupyter-dist:runs-table';

export interface ITableState {
  /** null: those that are usual for the runs that are there. */
  columns: string[] | null;
  sort: string;
  down: boolean;
  group: string;
  text: string;
}

export const USUAL: ITableState = { columns: null, sort: '', down: false, group: '', text: '' };

/** Keeps it where the application keeps state, and forgets it with the page elsewhere (null). */
export class TableStore {
  private _kept = '';

  constructor(private readonly _db: IStateDB | null) {}

  async read(): Promise<ITableState> {
    let found: unknown;
    try {
      found = (await this._db?.fetch(KEY)) ?? (await this._takenOver());
    } catch {
      found = remembered(OLD_KEY); // and nothing is taken over: a newer state may be kept
    }
    const { columns, sort, down, group, text } = Object(found) as Partial<ITableState>;
    const state = {
      columns: Array.isArray(columns) ? columns.map(String) : null,
      sort: String(sort ?? ''),
      down: down === true,
      group: String(group ?? ''),
      text: String(text ?? '')
    };
    this._kept = JSON.stringify(state);
    return state;
  }

  keep(state: ITableState): void {
    const value = { ...state };
    const kept = JSON.stringify(value);
    if (kept !== this._kept) {
      this._kept = kept;
      // A state that is not kept is chosen again the next time.
      this._db?.save(KEY, value).catch(() => undefined);
    }
  }

  /** What an earlier version has kept. It is removed there only after it is kept here. */
  private async _takenOver(): Promise<object> {
    const kept = remembered(OLD_KEY) as ReadonlyPartialJSONObject;
    if (this._db && Object.keys(kept).length) {
      await this._db.save(KEY, kept).then(
        () => localStorage.removeItem(OLD_KEY),
        () => undefined
      );
    }
    return kept;
  }
}
