/** Between which values a chart is drawn: two fields below its head, of which an empty one follows the data. */
import type { IContext } from './context';
import { button, el, setAttribute } from './dom';

/** The lowest and the highest value; null where the data decide. */
export type Range = readonly [number | null, number | null];

const FREE: Range = [null, null];

export class ValueRange {
  readonly node: HTMLElement;
  readonly button: HTMLButtonElement;
  private readonly _fields: HTMLInputElement[];

  constructor(
    name: string,
    { trans, signal }: IContext,
    private _range: Range = FREE,
    private readonly _changed: (range: Range) => void
  ) {
    const labels = [trans('Lowest value of %1', name), trans('Highest value of %1', name)];
    this._fields = labels.map((label, at) =>
      el('input', {
        type: 'number',
        step: 'any',
        class: 'jpd-input',
        placeholder: trans('auto'),
        'aria-label': label,
        value: _range[at]
      })
    );
    this.node = el('div', { class: 'jpd-chart-range', hidden: true }, ...this._fields);
    this.node.addEventListener('input', () => this._read(), { signal });
    this.node.addEventListener(
      'keydown',
      event => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          this._open(false);
          this.button.focus();
        }
      },
      { signal }
    );
    const label = trans('Range of values of %1', name);
    this.button = button(
      { label, icon: 'range' },
      () => {
        this._open(this.node.hidden);
        this._fields[0].focus();
      },
      signal
    );
    setAttribute(this.button, 'aria-expanded', 'false');
    this._mark();
  }

  /** What is drawn, given what the data take. Above `floor`, if the axis has such. */
  within(
    [min, max]: [number | null, number | null],
    floor = -Infinity
  ): [number | null, number | null] {
    const [low, high] = this._range.map(one => (one !== null && one > floor ? one : null));
    const [first, last] = [low ?? min, high ?? max];
    // The data may be beyond the one end that was typed.
    return first === null || last === null || first < last
      ? [first, last]
      : low === null
        ? [Math.max(last - 1, (floor + last) / 2), last]
        : [first, first + 1];
  }

  private _open(open: boolean): void {
    this.node.hidden = !open;
    setAttribute(this.button, 'aria-expanded', String(open));
  }

  private _read(): void {
    const [low, high] = this._fields.map(({ value }) => (value === '' ? null : Number(value)));
    const wrong = low !== null && high !== null && low >= high;
    this._fields.forEach(one => setAttribute(one, 'aria-invalid', wrong ? 'true' : null));
    if (!wrong) {
      this._range = [low, high];
      this._mark();
      this._changed(this._range);
    }
  }

  /** That the values are not all that there are can be seen. */
  private _mark(): void {
    this.button.toggleAttribute(
      'data-on',
      this._range.some(one => one !== null)
    );
  }
}
