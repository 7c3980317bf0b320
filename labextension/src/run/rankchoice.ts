/** Which ranks get a line of their own in the charts, and whether all of them are drawn as a mean and a band. */
import type { IContext } from './context';
import { el, toggle } from './dom';
import { parseRanges, ranges } from './format';
import type { RanksShown } from './ranksshown';
import { rankVariable } from './theme';

/** Above this many ranks: a mean and a band, and lines only for chosen ranks. */
export const LINES = 4;
/** Above this many ranks they are typed, not clicked. */
const CHIPS = 16;
/** Above this many ranks the lines of all are more than anybody can tell apart. */
const ALL_LINES = 64;

export class RankChoice {
  readonly node = el('span', { class: 'jpd-rank-toggles' });
  private readonly _chips: HTMLButtonElement[] = [];
  private _size = 0;
  private _band = false;
  private _field: HTMLInputElement | null = null;

  constructor(
    private readonly _context: IContext,
    private readonly _shown: RanksShown,
    private readonly _changed: () => void
  ) {
    _shown.onChange(() => {
      // What is typed is left as it is.
      if (this._field && this._field !== document.activeElement) {
        this._field.value = ranges([...(_shown.only ?? [])]);
      }
      this._tell();
    });
  }

  /** Whether the mean and the band are drawn. */
  get band(): boolean {
    return this._band;
  }

  /** The ranks that get a line. */
  get ranks(): Set<number> {
    const all = Array.from({ length: this._size }, (_, rank) => rank);
    // Of all together there are the mean and the band.
    return new Set(
      this._band && !this._shown.only ? [] : all.filter(rank => this._shown.has(rank))
    );
  }

  /** The same as they are asked for. Of a few ranks all points are there, and a click shows them at once.
   *
   * They are named, because the attempt may have had more ranks before. */
  get asked(): string | undefined {
    const all = Array.from({ length: this._size }, (_, rank) => rank);
    return ranges(this._size > LINES ? [...this.ranks] : all) || undefined;
  }

  update(size: number): void {
    if (size === this._size) {
      return;
    }
    const typed = this._size > CHIPS && size > CHIPS;
    // Of few ranks there is no button for the band, so each has its line.
    if (this._size <= LINES || size <= LINES) {
      this._band = size > LINES;
    }
    this._size = size;
    if (!typed) {
      this._make();
    }
  }

  private _make(): void {
    const size = this._size;
    this.node.replaceChildren();
    this._chips.length = 0;
    this._field = null;
    if (size < 2) {
      return;
    }
    if (size > LINES) {
      this.node.append(this._bandToggle());
    }
    if (size > CHIPS) {
      this.node.append(this._input());
      return;
    }
    for (let rank = 0; rank < size; rank++) {
      this._chips.push(this._chip(rank));
    }
    this.node.append(...this._chips);
    this._mark();
  }

  private _bandToggle(): HTMLElement {
    const { trans, signal } = this._context;
    const swatch = el('i', { class: 'jpd-swatch jpd-swatch-mean' });
    const text = trans('mean, min–max');
    if (this._size > ALL_LINES) {
      this._band = true;
      return el('span', { class: 'jpd-muted' }, swatch, text);
    }
    return toggle(
      {
        text: el('span', {}, swatch, text),
        title: trans('Mean of all ranks, and the band from the lowest to the highest'),
        on: this._band,
        class: 'jpd-band-toggle'
      },
      on => {
        this._band = on;
        this._tell();
      },
      signal
    );
  }

  private _input(): HTMLElement {
    const { trans, signal } = this._context;
    const input = el('input', {
      class: 'jpd-input jpd-ranks-input',
      placeholder: trans('ranks, e.g. 0-3,7'),
      'aria-label': trans('Ranks to draw besides the mean and its band'),
      spellcheck: 'false'
    });
    input.addEventListener(
      'input',
      () => {
        const ranks = parseRanges(input.value, this._size);
        input.setAttribute('aria-invalid', String(ranks === null));
        if (ranks) {
          this._shown.select(ranks);
        }
      },
      { signal }
    );
    this._field = input;
    return input;
  }

  private _chip(rank: number): HTMLButtonElement {
    const { trans, signal } = this._context;
    const swatch = el('i', { class: 'jpd-swatch' });
    swatch.style.background = `var(${rankVariable(rank)})`;
    const chip = el(
      'button',
      {
        type: 'button',
        class: 'jpd-toggle',
        'aria-label': trans('Rank %1', rank),
        title: trans('Show only rank %1. With Shift: add or remove it', rank)
      },
      swatch,
      String(rank)
    );
    const clicked = (event: MouseEvent) => this._shown.click(rank, event, this._band);
    chip.addEventListener('click', clicked, { signal });
    return chip;
  }

  private _mark(): void {
    const shown = this.ranks;
    this._chips.forEach((chip, rank) => chip.setAttribute('aria-pressed', String(shown.has(rank))));
  }

  private _tell(): void {
    this._mark();
    this._changed();
  }
}
