/** What chooses a log: a tab for all ranks, each rank and each launcher, or a list where they are many. */
import type { IContext } from './context';
import { el, roving } from './dom';
import { logName } from './logtexts';
import type { LogOf } from './source';
import { rankVariable } from './theme';

/** Above this many the tabs become a list to choose from. */
const TABS = 13;

export class LogTabs {
  readonly node = el('div', { class: 'jpd-tabs' });
  private _entries: LogOf[] = [];
  private _marked: LogOf = null;

  constructor(
    private readonly _context: IContext,
    /** What the tabs are for. */
    private readonly _panel: HTMLElement,
    private readonly _select: (of: LogOf) => void
  ) {}

  /** The logs there are, the first one being the one to begin with. */
  show(worldSize: number, launchers: readonly string[]): LogOf[] {
    const ranks = Array.from({ length: worldSize }, (_, rank) => rank);
    this._entries = [...(worldSize === 1 ? [] : [null]), ...ranks, ...launchers];
    const focused = this.node.contains(document.activeElement);
    this.node.removeAttribute('role');
    if (this._entries.length === 1) {
      this.node.replaceChildren(this._title());
    } else if (this._entries.length > TABS) {
      this.node.replaceChildren(this._title(), this._list());
    } else {
      this._tabs();
    }
    this.mark(this._marked);
    if (focused) {
      this.node.querySelector<HTMLElement>('select, [aria-selected=true]')?.focus();
    }
    return this._entries;
  }

  /** The log to begin with. */
  get first(): LogOf {
    return this._entries[0] ?? null;
  }

  /** Show which log is shown. */
  mark(of: LogOf): void {
    this._marked = of;
    const index = this._entries.indexOf(of);
    const list = this.node.querySelector('select');
    if (list) {
      list.selectedIndex = index;
      return;
    }
    this.node.querySelectorAll<HTMLElement>('[role=tab]').forEach((tab, i) => {
      tab.setAttribute('aria-selected', String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      if (i === index) {
        this._panel.setAttribute('aria-labelledby', tab.id);
      }
    });
  }

  private _title(): HTMLElement {
    return el('h4', { class: 'jpd-title' }, this._context.trans('Log'));
  }

  private _list(): HTMLElement {
    const { trans, signal } = this._context;
    const list = el('select', { class: 'jpd-input', 'aria-label': trans('Rank or launcher') });
    list.append(
      ...this._entries.map(of =>
        el('option', {}, of === null ? trans('All ranks') : logName(of, this._context))
      )
    );
    list.addEventListener('change', () => this._select(this._entries[list.selectedIndex]), {
      signal
    });
    return list;
  }

  private _tabs(): void {
    const { trans, signal } = this._context;
    this.node.setAttribute('role', 'tablist');
    this.node.setAttribute('aria-label', trans('Logs'));
    this._panel.setAttribute('role', 'tabpanel');
    const tabs = this._entries.map((of, i) => {
      const name = of === null ? trans('All') : logName(of, this._context);
      const short = typeof of === 'number' && this._entries[0] === null ? String(of) : name;
      const tab = el(
        'button',
        {
          type: 'button',
          role: 'tab',
          class: 'jpd-log-tab',
          id: `${this._panel.id}-${i}`,
          'aria-controls': this._panel.id,
          'aria-label': short === name ? null : name
        },
        short
      );
      if (typeof of === 'number') {
        tab.style.setProperty('--jpd-log-tab-colour', `var(${rankVariable(of)})`);
      }
      // The arrow keys move the focus, and with it what is shown.
      for (const type of ['click', 'focus']) {
        tab.addEventListener(type, () => this._select(of), { signal });
      }
      return tab;
    });
    // A new box, and with it new listeners, each time; it takes no part in the layout.
    const box = el('div', { class: 'jpd-tab-box', role: 'presentation' }, ...tabs);
    this.node.replaceChildren(box);
    roving(box, () => tabs, signal);
  }
}
