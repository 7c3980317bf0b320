/** Metrics in groups: by what stands before the slash in their names, and filtered by what is typed. */
import type { IContext } from './context';
import { button, el, setText } from './dom';

/** So few need neither sections nor a filter. */
export const FEW = 6;
/** A section shows this many charts at first. */
const FIRST_CHARTS = 12;

export interface IGroup {
  /** What the names begin with; '' for those without a slash, or alone with theirs. */
  prefix: string;
  names: string[];
}

/** The names by their prefixes, each in the order in which it was seen first; few ones in one group.
 *
 * Pinned ones come first. */
export function grouped(all: readonly string[], pinned: readonly string[] = []): IGroup[] {
  const first = pinned.filter(name => all.includes(name));
  const names = all.filter(name => !first.includes(name));
  if (all.length <= FEW) {
    return [{ prefix: '', names: [...first, ...names] }];
  }
  const counts = new Map<string, number>();
  for (const name of names) {
    counts.set(prefixOf(name), (counts.get(prefixOf(name)) ?? 0) + 1);
  }
  const groups = new Map<string, string[]>([['', first]]);
  for (const name of names) {
    const prefix = (counts.get(prefixOf(name)) ?? 0) > 1 ? prefixOf(name) : '';
    groups.set(prefix, [...(groups.get(prefix) ?? []), name]);
  }
  return [...groups]
    .map(([prefix, own]) => ({ prefix, names: own }))
    .filter(one => one.names.length);
}

function prefixOf(name: string): string {
  const slash = name.indexOf('/');
  return slash > 0 ? name.slice(0, slash) : '';
}

/** Whether a name is meant by what was typed: a regular expression, or text where it is none. */
export function matching(typed: string): (name: string) => boolean {
  const text = typed.trim();
  let pattern: RegExp | null = null;
  try {
    pattern = new RegExp(text, 'i');
  } catch {
    // Half a pattern, while it is typed.
  }
  return name => pattern?.test(name) ?? name.toLowerCase().includes(text.toLowerCase());
}

/** The charts of one group, below its name, which folds them. */
export class Section {
  readonly node: HTMLElement;
  readonly grid = el('div', { class: 'jpd-charts' });
  /** Show more than the first charts. */
  all = false;
  private readonly _details: HTMLDetailsElement | null = null;
  private readonly _count = el('span', { class: 'jpd-muted' });
  private readonly _more: HTMLButtonElement;
  private _openUnfiltered: boolean;

  constructor(
    prefix: string,
    open: boolean,
    private readonly _context: IContext,
    changed: () => void
  ) {
    const { signal } = _context;
    this._openUnfiltered = open;
    this._more = button(
      { label: '', text: ' ' },
      () => {
        this.all = true;
        changed();
      },
      signal
    );
    if (prefix) {
      this._details = el(
        'details',
        { class: 'jpd-chart-section', open },
        el('summary', {}, prefix, ' ', this._count),
        this.grid,
        this._more
      );
      this._details.addEventListener('toggle', changed, { signal });
      this.node = this._details;
    } else {
      this.node = el('div', { class: 'jpd-chart-section' }, this.grid, this._more);
    }
  }

  get open(): boolean {
    return this._details?.open ?? true;
  }

  /** Whether a filter is on: then nothing that it finds is folded. */
  set filtered(filtered: boolean) {
    const details = this._details;
    if (!details || filtered === (details.dataset.filtered === '')) {
      return;
    }
    if (filtered) {
      this._openUnfiltered = details.open;
    }
    details.toggleAttribute('data-filtered', filtered);
    details.open = filtered || this._openUnfiltered;
  }

  /** Which of these are drawn now. */
  shown(names: readonly string[]): readonly string[] {
    const shown = this.all ? names : names.slice(0, FIRST_CHARTS);
    const { trans } = this._context;
    setText(this._count, String(names.length));
    this._more.hidden = shown.length === names.length;
    setText(this._more, trans('Show %1 more metrics', names.length - shown.length));
    return this.open ? shown : [];
  }
}
