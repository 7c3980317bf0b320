/** Which ranks a view shows: one choice for its chips, charts, displays, media and logs.
 *
 * A click on a rank shows it alone, another one all again; with Shift or Ctrl it is added or taken away. */

export class RanksShown {
  /** The ranks that were selected; null where none was. */
  private _only: Set<number> | null = null;
  /** Where none was selected: those that were taken away, which they stay when others join. */
  private readonly _off = new Set<number>();
  private readonly _listeners: (() => void)[] = [];

  get only(): ReadonlySet<number> | null {
    return this._only;
  }

  /** The only rank that is shown; null where several are. */
  get single(): number | null {
    return this._only?.size === 1 ? [...this._only][0] : null;
  }

  has(rank: number): boolean {
    return this._only ? this._only.has(rank) : !this._off.has(rank);
  }

  onChange(listener: () => void): void {
    this._listeners.push(listener);
  }

  /** Show these ranks alone; null or none: all. */
  select(ranks: readonly number[] | null): void {
    this._only = ranks?.length ? new Set(ranks) : null;
    this._off.clear();
    this._listeners.forEach(listener => listener());
  }

  /** A rank was clicked. `none`: no rank is shown unless it is selected. */
  click(rank: number, event: MouseEvent, none = false): void {
    if (!(event.shiftKey || event.ctrlKey || event.metaKey)) {
      this.select(this.single === rank ? null : [rank]);
    } else if (this._only || none) {
      const others = [...(this._only ?? [])].filter(one => one !== rank);
      this.select(this._only?.has(rank) ? others : [...others, rank]);
    } else {
      if (!this._off.delete(rank)) {
        this._off.add(rank);
      }
      this._listeners.forEach(listener => listener());
    }
  }
}
