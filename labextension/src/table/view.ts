/** Hundreds of runs in a table: columns to choose, sorting, groups, a filter, and runs to compare. */
import { reason } from '../run/context';
import { button, el, setText } from '../run/dom';
import { typeInto } from '../run/rename';
import type { IDisposable, IRunSummary } from '../run/source';
import { followTheme } from '../run/theme';
import type { Trans } from '../run/trans';
import { NO_FILTER, type RunLists } from '../model/runlists';
import type { IRunPage, IServer } from '../model/server';
import { TableBody, type Row } from './body';
import { Clock } from './clock';
import { ColumnMenu } from './columnmenu';
import { columnsOf, grouped, sorted, usual, type IColumn } from './columns';
import { TableHead } from './head';
import { emptyNode, type IRowActions } from './rows';
import { USUAL, type ITableState, type TableStore } from './state';

const TYPING_MS = 200;
/** How often the list is read again although nothing said that it changed. */
const INTERVAL_S = 60;
const TICK_MS = 1000;

export interface IRunsTableOptions {
  server: Pick<IServer, 'about'>;
  lists: RunLists;
  trans: Trans;
  /** How it was left, and where to keep how it is left. */
  state?: ITableState;
  store?: TableStore;
  open: (id: string) => void;
  compare: (ids: string[]) => void;
  /** Shows the menu of these runs at a place in the window. */
  menu?: (
    runs: readonly IRunSummary[],
    at: { clientX: number; clientY: number },
    rename: () => void
  ) => void;
}

export class RunsTable implements IDisposable {
  readonly node: HTMLElement;
  readonly columnMenu: ColumnMenu;
  private readonly _abort = new AbortController();
  private readonly _filter: HTMLInputElement;
  private readonly _group: HTMLSelectElement;
  private readonly _compare: HTMLButtonElement;
  private readonly _count = el('span', { class: 'jpd-muted', role: 'status' });
  private readonly _head: TableHead;
  private readonly _body: TableBody;
  private readonly _scroll: HTMLElement;
  private readonly _listening: IDisposable;
  private readonly _chosen = new Set<string>();
  private readonly _closed = new Set<string>();
  private readonly _state: ITableState;
  private _runs: readonly IRunSummary[] = [];
  /** All runs that were read so far: what they have columns for does not vanish while a filter is typed. */
  private readonly _seen = new Map<string, IRunSummary>();
  private readonly _empty = el('div', { hidden: true });
  private readonly _actions: IRowActions;
  private _columns: IColumn[] = [];
  private _shown: IColumn[] = [];
  private _groups = '';
  private _rows: Row[] = [];
  private readonly _clock = new Clock();
  /** What was read, as far as it is shown. */
  private _told = '';
  /** The pointer is pressed: a row that is made anew before it is released takes no click. */
  private _pressed = false;
  /** What was read meanwhile. */
  private _late: IRunPage | null = null;
  private readonly _reader = {
    filter: NO_FILTER,
    wanted: Infinity,
    interval_s: INTERVAL_S,
    take: (page: IRunPage, changed?: IRunSummary) => this._take(page, changed),
    fail: (error: unknown) => this._fail(error)
  };
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly _options: IRunsTableOptions) {
    const { trans, lists, state = USUAL } = _options;
    const { signal } = this._abort;
    this._state = { ...state };
    this._reader.filter = { ...NO_FILTER, text: state.text };
    this._filter = el('input', {
      type: 'search',
      class: 'jpd-input',
      value: this._state.text,
      placeholder: trans('Text, lr>=0.1, tag:best, state:failed'),
      'aria-label': trans('Filter runs by text')
    });
    this._filter.addEventListener('input', () => this._typed(), { signal });
    this._group = el('select', { class: 'jpd-input', 'aria-label': trans('Group runs by') });
    this._group.addEventListener(
      'change',
      () => {
        this._state.group = this._group.value;
        this._arrange();
      },
      { signal }
    );
    this.columnMenu = new ColumnMenu(trans, signal, ids => {
      this._state.columns = ids;
      this._arrange();
    });
    this._compare = button(
      { label: trans('Compare'), text: trans('Compare') },
      () => _options.compare([...this._chosen]),
      signal
    );
    this._head = new TableHead(
      trans,
      signal,
      column => this._sort(column),
      on => this._chooseAll(on)
    );
    this._actions = {
      trans,
      signal,
      isSelected: id => this._chosen.has(id),
      select: id => {
        if (!this._chosen.delete(id)) {
          this._chosen.add(id);
        }
        this._tell();
      },
      open: id => _options.open(id),
      rename: run => this._rename(run),
      isOpen: group => !this._closed.has(group.key),
      toggle: group => {
        if (!this._closed.delete(group.key)) {
          this._closed.add(group.key);
        }
        this._arrange();
        this._body.focus(`group ${group.key}`);
      }
    };
    this._body = new TableBody(this._clock, this._actions);
    this._scroll = el(
      'div',
      { class: 'jpd-runs-scroll', tabindex: 0, role: 'region', 'aria-label': trans('Runs') },
      el(
        'table',
        { class: 'jpd-runs-table' },
        this._head.cols,
        el('thead', {}, this._head.row),
        this._body.node
      ),
      this._empty
    );
    this._scroll.addEventListener('scroll', () => this._body.draw(), { signal, passive: true });
    this._body.node.addEventListener('keydown', event => this._key(event), { signal });
    this._body.node.addEventListener('contextmenu', event => this._menu(event), { signal });
    this.node = el(
      'section',
      { class: 'jpd-run jpd-runs', 'aria-label': trans('Runs as a table') },
      el(
        'div',
        { class: 'jpd-runs-bar' },
        this._filter,
        this._group,
        this.columnMenu.node,
        this._compare,
        this._count
      ),
      this._scroll
    );
    this.node.addEventListener('pointerdown', () => (this._pressed = true), { signal });
    const release = () => setTimeout(() => this._release()); // the click comes first
    window.addEventListener('pointerup', release, { signal });
    window.addEventListener('pointercancel', release, { signal });
    // A menu of the browser, such as that of the groups, takes the release for itself.
    const moved = (event: PointerEvent) => {
      if (this._pressed && !event.buttons) {
        release();
      }
    };
    window.addEventListener('pointermove', moved, { signal });
    const resize = new ResizeObserver(() => this._body.draw());
    resize.observe(this._scroll);
    signal.addEventListener('abort', () => resize.disconnect());
    const ticking = setInterval(
      () => this._clock.tick(this._body.node, this._runs, this._shown),
      TICK_MS
    );
    signal.addEventListener('abort', () => clearInterval(ticking));
    followTheme(this.node, () => undefined, signal);
    this._listening = lists.listen(this._reader);
  }

  dispose(): void {
    clearTimeout(this._timer);
    this._listening.dispose();
    this._abort.abort();
    this.node.remove();
  }

  /** Read the list anew. */
  refresh(): Promise<void> {
    this._state.text = this._filter.value;
    this._reader.filter = { ...NO_FILTER, text: this._state.text };
    return this._options.lists.refresh(this._reader);
  }

  private _release(): void {
    this._pressed = false;
    if (this._late && !this._abort.signal.aborted) {
      this._take(this._late);
    }
  }

  private _take(page: IRunPage, changed?: IRunSummary): void {
    const { runs } = page;
    const { text } = this._state;
    this._late = this._pressed ? page : null;
    if (this._pressed) {
      return;
    }
    const shown = () => runs.map(run => ({ ...run, host_time: 0, progress: null }));
    const told = changed ? this._told : JSON.stringify([text, shown()]);
    if (told === this._told) {
      this._tell();
      return;
    }
    this._told = told;
    this._runs = runs;
    if (!text) {
      this._seen.clear();
    }
    runs.forEach(run => this._seen.set(run.id, run));
    this._clock.set();
    this._arrange();
  }

  private _fail(error: unknown): void {
    setText(this._count, this._options.trans('The runs cannot be listed: %1', reason(error)));
  }

  private _typed(): void {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.refresh(), TYPING_MS);
  }

  /** Columns, order and groups anew. */
  private _arrange(): void {
    const { trans } = this._options;
    const state = this._state;
    this._options.store?.keep(state);
    const seen = [...this._seen.values()];
    this._columns = columnsOf(seen, trans);
    const ids = state.columns ?? usual(this._columns, seen);
    this._shown = this._columns.filter(one => ids.includes(one.id) || one.id === 'name');
    this.columnMenu.update(
      this._columns,
      this._shown.map(one => one.id),
      state.columns !== null
    );
    this._drawGroups();
    const by = this._columns.find(one => one.id === state.sort);
    const runs = sorted(this._runs, by, state.down);
    const group = this._columns.find(one => one.id === state.group);
    this._rows = group
      ? grouped(runs, group).flatMap(one => [one, ...(this._closed.has(one.key) ? [] : one.runs)])
      : runs;
    const there = new Set(this._runs.map(run => run.id));
    [...this._chosen].filter(id => !there.has(id)).forEach(id => this._chosen.delete(id));
    this._head.update(this._shown, seen, state);
    this._empty.hidden = !this._told || this._runs.length > 0;
    this._empty.replaceChildren(
      emptyNode(state.text !== '', this._actions, () => {
        this._filter.value = '';
        this._filter.focus();
        void this.refresh();
      })
    );
    this._body.show(this._rows, this._shown);
    this._tell();
  }

  private _sort(column: IColumn): void {
    // Up, down, and as the runs come.
    const state = this._state;
    const ends = state.sort === column.id && state.down;
    state.down = state.sort === column.id && !ends;
    state.sort = ends ? '' : column.id;
    this._arrange();
  }

  private _chooseAll(on: boolean): void {
    this._chosen.clear();
    if (on) {
      this._runs.forEach(run => this._chosen.add(run.id));
    }
    this._body.redraw();
    this._tell();
  }

  private _tell(): void {
    const { trans } = this._options;
    const count = this._runs.length;
    const texts = [count === 1 ? trans('1 run') : trans('%1 runs', count)];
    if (this._chosen.size) {
      texts.push(trans('%1 selected', this._chosen.size));
    }
    setText(this._count, texts.join(' · '));
    this._head.allChosen = count > 0 && this._chosen.size === count;
    this._compare.disabled = this._chosen.size < 2;
    this._compare.title = trans('Select two or more runs');
  }

  private _drawGroups(): void {
    const { trans } = this._options;
    const able = this._columns.filter(
      one => one.kind !== 'metric' && !['id', 'age'].includes(one.id)
    );
    const ids = able.map(one => one.id);
    if (JSON.stringify(ids) === this._groups) {
      return; // somebody may be choosing
    }
    this._groups = JSON.stringify(ids);
    const options = able.map(one =>
      el(
        'option',
        { value: one.id },
        // The name of a parameter stays as it is.
        trans('Group by %1', one.kind === 'run' ? one.label.toLowerCase() : one.label)
      )
    );
    this._group.replaceChildren(el('option', { value: '' }, trans('No groups')), ...options);
    this._group.value = ids.includes(this._state.group) ? this._state.group : '';
  }

  private _menu(event: MouseEvent): void {
    const id = (event.target as HTMLElement).closest('tr')?.dataset.id;
    const run = this._runs.find(one => one.id === id);
    if (run && this._options.menu) {
      event.preventDefault();
      event.stopPropagation();
      const chosen = this._chosen.has(run.id);
      const runs = chosen ? this._runs.filter(one => this._chosen.has(one.id)) : [run];
      this._options.menu(runs, event, () => this._rename(run));
    }
  }

  private _key(event: KeyboardEvent): void {
    const row = (event.target as HTMLElement).closest('tr');
    const at = this._rows.findIndex(one => 'id' in one && one.id === row?.dataset.id);
    const run = this._rows[at];
    if (this._body.typing || !run || 'runs' in run) {
      return;
    }
    if (event.key === 'F2') {
      this._rename(run);
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const next = this._rows[at + (event.key === 'ArrowDown' ? 1 : -1)];
      if (next) {
        this._body.focus('runs' in next ? `group ${next.key}` : next.id);
        document.activeElement?.scrollIntoView({ block: 'nearest' });
      }
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Type another name in the place of the old one. */
  private _rename(run: IRunSummary): void {
    const { trans, server } = this._options;
    const cell = this._body.rowOf(run.id)?.querySelector('.jpd-runs-name')?.parentElement;
    if (!cell || this._body.typing) {
      return;
    }
    this._body.typing = true;
    const asked = { value: run.name, label: trans('Name of the run'), most: 120 };
    typeInto(cell, asked, this._abort.signal, name => {
      this._body.typing = false;
      const change = name === null || name === run.name ? null : server.about(run.id, { name });
      void (change ?? Promise.resolve())
        .then(() => change && this.refresh())
        .catch(error => setText(this._count, reason(error)))
        .finally(() => {
          this._body.redraw();
          this._body.focus(run.id);
        });
    });
  }
}
