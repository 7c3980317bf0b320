/** Rows of a list that are higher than others, as something stands in their place or below them. */

export interface IHighRows {
  first: number;
  /** How many rows it takes the place of: all of its height is at the first one, the others have none. */
  count: number;
  height: number;
}

/** Where rows are in a list in which some are stretched. */
export class RowHeights {
  private readonly _counts: number[] = [0];
  private readonly _heights: number[] = [0];

  /** In the order of rows; none reaches into the next one. */
  constructor(private readonly _all: readonly IHighRows[]) {
    _all.forEach(({ count, height }, i) => {
      this._counts.push(this._counts[i] + count);
      this._heights.push(this._heights[i] + height);
    });
  }

  /** Where a row begins; also one after the last. */
  top(row: number, rowHeight: number): number {
    const i = this._before(({ first }) => first < row);
    const last = i > 0 ? this._all[i - 1] : null;
    const hidden = last && row < last.first + last.count ? last.first + last.count - row : 0;
    return (row + hidden - this._counts[i]) * rowHeight + this._heights[i];
  }

  /** The row at an offset, and how far into it that is. */
  at(offset: number, rowHeight: number): { row: number; within: number } {
    const i = this._before(({ first }) => this.top(first, rowHeight) <= offset);
    const last = i > 0 ? this._all[i - 1] : null;
    if (!last) {
      const row = Math.floor(offset / rowHeight);
      return { row, within: offset - row * rowHeight };
    }
    const within = offset - this.top(last.first, rowHeight);
    if (within < last.height) {
      return { row: last.first, within };
    }
    const after = Math.floor((within - last.height) / rowHeight);
    return {
      row: last.first + last.count + after,
      within: within - last.height - after * rowHeight
    };
  }

  /** The stretch that a row belongs to, also where the row itself has no height. */
  of(row: number): IHighRows | null {
    const i = this._before(({ first }) => first <= row);
    const last = i > 0 ? this._all[i - 1] : null;
    return last && row < last.first + last.count ? last : null;
  }

  /** How many of them, from the first on, are as is said. */
  private _before(is: (stretch: IHighRows) => boolean): number {
    let low = 0;
    let high = this._all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (is(this._all[middle])) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
}
