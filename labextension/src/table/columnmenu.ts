/** The menu of the columns of the table of runs. It stays open while columns are chosen. */
import { MenuSvg } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { button } from '../run/dom';
import type { Trans } from '../run/trans';
import type { IColumn } from './columns';

const COLUMN = 'jupyter-dist:table-column';
const HEADING = 'jupyter-dist:table-heading';
const DEFAULT = 'jupyter-dist:table-default-columns';
const KINDS = ['run', 'param', 'metric', 'extreme'] as const;

export class ColumnMenu {
  /** The button that opens the menu. */
  readonly node: HTMLButtonElement;
  private readonly _commands = new CommandRegistry();
  readonly menu = new MenuSvg({ commands: this._commands });
  private _columns: readonly IColumn[] = [];
  private _shown: readonly string[] = [];
  /** Whether the columns are others than the usual ones. */
  private _own = false;
  /** The pointer was pressed on the button while the menu was open, and has closed it. */
  private _closed = false;

  constructor(
    private readonly _trans: Trans,
    signal: AbortSignal,
    /** Called with the ids of what is to be shown; with null for what is usual. */
    changed: (ids: string[] | null) => void
  ) {
    const label = _trans('Columns');
    const clicked = () => {
      if (!this._closed) {
        this._open();
      }
      this._closed = false;
    };
    this.node = button({ label, text: label }, clicked, signal);
    this.node.setAttribute('aria-haspopup', 'menu');
    this.node.setAttribute('aria-expanded', 'false');
    // Before the menu hears of it: on the way down from the window.
    const pressed = (event: Event) => {
      this._closed = this.menu.isAttached && this.node.contains(event.target as Node);
    };
    window.addEventListener('pointerdown', pressed, { capture: true, signal });
    const describedBy = { args: { type: 'object', properties: { id: { type: 'string' } } } };
    const labelOf = ({ label }: ReadonlyPartialJSONObject) => String(label);
    this._commands.addCommand(COLUMN, {
      label: labelOf,
      isToggleable: true,
      isToggled: ({ id }) => this._shown.includes(String(id)),
      execute: ({ id }) => {
        const others = this._shown.filter(one => one !== id);
        changed(others.length < this._shown.length ? others : [...others, String(id)]);
        this._open(String(id));
      },
      describedBy
    });
    this._commands.addCommand(HEADING, {
      label: labelOf,
      isEnabled: () => false,
      execute: () => undefined,
      describedBy
    });
    this._commands.addCommand(DEFAULT, {
      label: _trans('Default columns'),
      isEnabled: () => this._own,
      execute: () => changed(null),
      describedBy
    });
    this.menu.aboutToClose.connect(() => {
      this.node.setAttribute('aria-expanded', 'false');
      this.node.focus();
    });
    signal.addEventListener('abort', () => this.menu.dispose());
  }

  update(columns: readonly IColumn[], shown: readonly string[], own: boolean): void {
    this._columns = columns;
    this._shown = shown;
    this._own = own;
  }

  /** Open the menu, at the item of a column that was chosen in it. */
  private _open(chosen?: string): void {
    const trans = this._trans;
    const titles = {
      run: trans('Run'),
      param: trans('Parameters'),
      metric: trans('Metrics: last value'),
      extreme: trans('Metrics: lowest and highest value')
    };
    this.menu.clearItems();
    this.menu.addItem({ command: DEFAULT });
    for (const kind of KINDS) {
      const own = this._columns.filter(one => one.kind === kind && one.id !== 'name');
      if (own.length) {
        this.menu.addItem({ type: 'separator' });
        this.menu.addItem({ command: HEADING, args: { label: titles[kind] } });
        own.forEach(({ id, label }) => this.menu.addItem({ command: COLUMN, args: { id, label } }));
      }
    }
    const { left, bottom } = this.node.getBoundingClientRect();
    this.menu.open(left, bottom);
    this.node.setAttribute('aria-expanded', 'true');
    if (chosen !== undefined) {
      this.menu.activeIndex = this.menu.items.findIndex(({ args }) => args.id === chosen);
    }
  }
}
