/** Which columns the table of runs has. */
import { button, el } from '../run/dom';
import type { Trans } from '../run/trans';
import type { IColumn } from './columns';

export class ColumnChoice {
  readonly node: HTMLElement;
  private readonly _list = el('div', { class: 'jpd-columns-list' });
  private readonly _usual: HTMLButtonElement;
  private readonly _summary: HTMLElement;
  private _key = '';

  constructor(
    private readonly _trans: Trans,
    private readonly _signal: AbortSignal,
    /** Called with the ids of what is to be shown; with null for what is usual. */
    private readonly _changed: (ids: string[] | null) => void
  ) {
    this._usual = button(
      { label: _trans('Default columns'), text: _trans('Default columns') },
      () => this._changed(null),
      _signal
    );
    this._summary = el('summary', { class: 'jpd-button' }, _trans('Columns'));
    const details = el(
      'details',
      { class: 'jpd-columns' },
      this._summary,
      el('div', { class: 'jpd-columns-box' }, this._list, this._usual)
    );
    this.node = details;
    // As a menu it goes when one looks elsewhere.
    document.addEventListener(
      'pointerdown',
      event => {
        if (!details.contains(event.target as Node)) {
          details.open = false;
        }
      },
      { signal: _signal, capture: true }
    );
    details.addEventListener(
      'keydown',
      event => {
        if (event.key === 'Escape' && details.open) {
          details.open = false;
          this._summary.focus();
          event.stopPropagation();
        }
      },
      { signal: _signal }
    );
  }

  update(columns: readonly IColumn[], shown: readonly string[], own: boolean): void {
    this._usual.disabled = !own;
    const key = JSON.stringify(columns.map(one => one.id));
    if (key !== this._key) {
      this._key = key;
      this._make(columns);
    }
    for (const box of this._boxes()) {
      box.checked = shown.includes(box.value);
    }
  }

  private _boxes(): HTMLInputElement[] {
    return [...this._list.querySelectorAll('input')];
  }

  private _make(columns: readonly IColumn[]): void {
    const titles = {
      run: this._trans('Run'),
      param: this._trans('Parameters'),
      metric: this._trans('Metrics: last value'),
      extreme: this._trans('Metrics: lowest and highest value')
    };
    const parts = (['run', 'param', 'metric', 'extreme'] as const).map(kind => {
      const boxes = columns
        .filter(one => one.kind === kind && one.id !== 'name')
        .map(one => {
          const box = el('input', { type: 'checkbox', value: one.id });
          const tell = () =>
            this._changed(['name', ...this._boxes().flatMap(b => (b.checked ? b.value : []))]);
          box.addEventListener('change', tell, { signal: this._signal });
          return el('label', { title: one.label }, box, one.label);
        });
      return boxes.length
        ? el('fieldset', {}, el('legend', { class: 'jpd-muted' }, titles[kind]), ...boxes)
        : null;
    });
    this._list.replaceChildren(...parts.filter(part => part !== null));
  }
}
