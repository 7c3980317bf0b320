/** Which ranks get a line of their own in the charts, and whether all of them are drawn as a mean and a band.
 *
 * A click on a rank shows it alone, another one all again; with Shift or Ctrl it is added or taken away. */
import type { IContext } from './context';
import { el, toggle } from './dom';
import { parseRanges, ranges } from './format';
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
  /** The ranks that were chosen; null where none was. */
  private _only: Set<number> | null = null;
  /** Where none was chosen: those that were taken away, which they stay when others join. */
  private readonly _off = new Set<number>();

  constructor(
    private readonly _context: IContext,
    private readonly _changed: () => void
  ) {}

  /** Whether the mean and the band are drawn. */
  get band(): boolean {
    return this._band;
  }

  /** The ranks that get a line. */
  get ranks(): Set<number> {
    const all = Array.from({ length: this._size }, (_, rank) => rank);
    const { _only: only, _off: off } = this;
    if (only) {
      return new Set(all.filter(rank => only.has(rank)));
    }
    return new Set(this._band ? [] : all.filter(rank => !off.has(rank)));
  }

  /** The same as they are asked for. Of a few ranks all points are there, and a click shows them at once. */
  get asked(): string | undefined {
    return this._size > LINES ? ranges([...this.ranks]) || undefined : undefined;
  }

  update(size: number): void {
    if (size === this._size) {
      return;
    }
    const typed = this._size > CHIPS && size > CHIPS;
    if (this._size <= LINES) {
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
          this._only = ranks.length ? new Set(ranks) : null;
          this._tell();
        }
      },
      { signal }
    );
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
    chip.addEventListener(
      'click',
      event => {
        if (event.shiftKey || event.ctrlKey || event.metaKey) {
          this._addOrTake(rank);
        } else {
          this._solo(rank);
        }
        this._tell();
      },
      { signal }
    );
    return chip;
  }

  private _solo(rank: number): void {
    const alone = this._only?.size === 1 && this._only.has(rank);
    this._only = alone ? null : new Set([rank]);
    this._off.clear();
  }

  private _addOrTake(rank: number): void {
    if (this._only) {
      turn(this._only, rank);
      this._only = this._only.size ? this._only : null;
    } else if (this._band) {
      this._only = new Set([rank]);
    } else {
      turn(this._off, rank);
    }
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

function turn(ranks: Set<number>, rank: number): void {
  if (!ranks.delete(rank)) {
    ranks.add(rank);
  }
}
