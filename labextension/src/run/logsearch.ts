/** The search of a log, on the other side: what is looked for, how many lines have it, and one after the other.
 *
 * Where it filters, only the lines that it finds are shown. */
import { isComposing } from './keys';
import { reason, type IContext } from './context';
import { button, el, setAttribute, setText, toggle } from './dom';
import { count } from './format';
import type { LogList } from './loglist';
import { escaped, ofLevel, type LogLevel } from './loglevels';
import type { Attempt, LogOf } from './source';

const PAUSE_MS = 200;
const AGAIN_MS = 2000;
const HITS = 10_000;
/** Of a log that grows for days, no more hits are kept, unless somebody has a place among older ones. */
const MOST_HITS = 100_000;

/** The log that is searched. */
interface ISearched {
  of: LogOf;
  attempt: Attempt;
  list: LogList;
}

export class LogSearch {
  readonly nodes: HTMLElement[];
  private readonly _input: HTMLInputElement;
  private readonly _hits = el('output', { class: 'jpd-hits' });
  private readonly _toggles = { regex: false, case: false };
  private readonly _only: HTMLButtonElement;
  private readonly _level: HTMLSelectElement;
  private _found: { query: string; hits: number[]; count: number; at: number } | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  /** The search whose answer is awaited. */
  private _search: AbortController | null = null;

  constructor(
    private readonly _context: IContext,
    private readonly _shown: () => ISearched | null,
    /** Only these lines are to be shown, or all (null). `grown`: they were shown already, and are more now. */
    private readonly _filtered: (hits: readonly number[] | null, grown: boolean) => void
  ) {
    const { trans, signal } = _context;
    this._input = el('input', {
      type: 'search',
      class: 'jpd-input jpd-search',
      placeholder: trans('Search the log'),
      'aria-label': trans('Search the whole log'),
      spellcheck: 'false'
    });
    this._input.addEventListener('input', () => this._soon(), { signal });
    this._input.addEventListener(
      'keydown',
      event => {
        if (isComposing(event)) {
          return;
        }
        if (event.key === 'Enter') {
          event.preventDefault();
          void this._stepWhenFound(event.shiftKey ? -1 : 1);
        } else if (event.key === 'Escape' && this._input.value) {
          event.preventDefault();
          event.stopPropagation();
          this._input.value = '';
          void this._find();
        }
      },
      { signal }
    );
    const only = trans('Show only the lines that match');
    this._only = toggle({ text: trans('only'), label: only }, () => void this._find(), signal);
    this._level = el(
      'select',
      { class: 'jpd-input', 'aria-label': trans('Show only lines of a level') },
      el('option', { value: 'all' }, trans('all levels')),
      el('option', { value: 'warning' }, trans('warnings')),
      el('option', { value: 'error' }, trans('errors'))
    );
    this._level.addEventListener('change', () => void this._find(), { signal });
    const mode = (name: 'regex' | 'case', text: string, label: string) =>
      toggle(
        { text, label },
        on => {
          this._toggles[name] = on;
          void this._find();
        },
        signal
      );
    const step = (by: 1 | -1, label: string, icon: 'up' | 'down') =>
      button({ label, icon }, () => void this._stepWhenFound(by), signal);
    this.nodes = [
      el(
        'span',
        { class: 'jpd-search-box' },
        this._input,
        this._hits,
        mode('case', 'Aa', trans('Match case')),
        mode('regex', '.*', trans('Regular expression')),
        this._only
      ),
      step(-1, trans('Previous hit'), 'up'),
      step(1, trans('Next hit'), 'down'),
      this._level
    ];
    signal.addEventListener('abort', () => {
      clearTimeout(this._timer);
      this._search?.abort();
    });
  }

  /** Whether only some lines are shown. */
  get filters(): boolean {
    return this._of !== 'all' || (this._isOnly && this._input.value !== '');
  }

  private get _isOnly(): boolean {
    return this._only.getAttribute('aria-pressed') === 'true';
  }

  private get _of(): LogLevel {
    return this._level.value as LogLevel;
  }

  /** Whether there is something to search for. */
  private get _asks(): boolean {
    return this._of !== 'all' || this._input.value !== '';
  }

  /** Go to the last line with a text, among all lines. */
  async findLast(text: string): Promise<void> {
    this._input.value = text;
    this._level.value = 'all';
    if (this._isOnly || this._toggles.regex) {
      [...this.nodes[0].querySelectorAll<HTMLElement>('[aria-pressed=true]')].forEach(one =>
        one.click()
      );
    }
    await this._find();
    this._step(-1);
  }

  focus(): void {
    this._input.focus();
    this._input.select();
  }

  /** Another log is shown: the same is looked for in it. */
  begin(): void {
    this._found = null;
    if (this._asks) {
      void this._find();
    }
  }

  private _soon(): void {
    this._clear();
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this._find(), PAUSE_MS);
  }

  /** What was found is not what is typed now. */
  private _clear(): void {
    this._search?.abort();
    this._search = null;
    this._found = null;
    this._input.removeAttribute('aria-invalid');
    this._shown()?.list.mark(null, -1);
    this._showHits();
    this._busy(this._asks);
  }

  private _busy(busy: boolean): void {
    setAttribute(this._hits, 'aria-busy', busy ? 'true' : null);
  }

  /** The log has grown. If it does so all the time, that puts off no search, and takes none back. */
  grown(): void {
    if (this._asks && this._timer === undefined) {
      this._timer = setTimeout(() => {
        this._timer = undefined;
        if (this._search) {
          this.grown(); // it has not read what has come since
        } else {
          void this._find(true);
        }
      }, AGAIN_MS);
    }
  }

  /** Ask for the hits. `again`: the log has grown; the place in it is kept. */
  private async _find(again = false): Promise<void> {
    const shown = this._shown();
    const query = this._input.value;
    clearTimeout(this._timer);
    this._timer = undefined;
    this._search?.abort();
    if (!again || !this._asks) {
      this._clear();
    }
    if (!this.filters) {
      this._filtered(null, again);
    }
    if (!shown || !this._asks) {
      this._busy(false);
      return;
    }
    const search = (this._search = new AbortController());
    const { source, trans, announce } = this._context;
    try {
      const asked = ofLevel(this._of, { query, ...this._toggles });
      const more = { limit: HITS, attempt: shown.attempt };
      const answer = await source.logSearch(shown.of, { ...asked, ...more }, search.signal);
      if (search !== this._search || shown !== this._shown()) {
        return;
      }
      this._input.removeAttribute('aria-invalid');
      const before = again ? this._found : null;
      const oldest = shown.list.following ? (before?.at ?? -1) : 0;
      const hits =
        before && answer.truncated ? joined(before.hits, answer.hits, oldest) : answer.hits;
      const found = answer.count;
      const at = before ? hits.indexOf(before.hits[before.at]) : -1;
      this._found = { query, hits, count: found, at };
      if (this.filters) {
        this._filtered(hits, again);
      }
      shown.list.mark(this._expression(query), at >= 0 ? this._row(at) : -1);
      this._showHits();
      if (!again) {
        announce(found === 1 ? trans('1 line found') : trans('%1 lines found', count(found)));
      }
    } catch (error) {
      if (search === this._search) {
        this._found = null;
        this._input.setAttribute('aria-invalid', 'true');
        setText(this._hits, reason(error));
        setAttribute(this._hits, 'title', reason(error));
        setAttribute(this._hits, 'data-wrong', '');
        announce(reason(error));
      }
    } finally {
      if (search === this._search) {
        this._search = null;
        this._busy(false);
      }
    }
  }

  private _showHits(): void {
    const found = this._found;
    // Of very many hits only the last ones are known.
    const place = found ? found.at + 1 + found.count - found.hits.length : 0;
    setAttribute(this._hits, 'title', null);
    setAttribute(this._hits, 'data-wrong', null);
    setText(
      this._hits,
      !found ? '' : found.at < 0 ? count(found.count) : `${count(place)}/${count(found.count)}`
    );
  }

  /** Where the list has a hit. */
  private _row(at: number): number {
    return this.filters ? at : (this._found?.hits[at] ?? -1);
  }

  /** Enter may come before what was typed has been searched for. */
  private async _stepWhenFound(by: 1 | -1): Promise<void> {
    if (this._found?.query !== this._input.value) {
      await this._find();
    }
    this._step(by);
  }

  private _step(by: 1 | -1): void {
    const shown = this._shown();
    const found = this._found;
    if (!shown || !found?.hits.length) {
      return;
    }
    const { hits } = found;
    found.at =
      found.at < 0 && by < 0 ? hits.length - 1 : (found.at + by + hits.length) % hits.length;
    shown.list.mark(this._expression(this._input.value), this._row(found.at));
    shown.list.reveal(this._row(found.at));
    this._showHits();
  }

  /** What the server searched for, to mark it here; null where this browser cannot read it. */
  private _expression(query: string): RegExp | null {
    if (!query) {
      return null;
    }
    const pattern = this._toggles.regex ? query : escaped(query);
    try {
      return new RegExp(pattern, this._toggles.case ? 'g' : 'gi');
    } catch {
      return null;
    }
  }
}

/** The known hits and those after them, each in its place. If there may be others in between, the last ones alone.
 *
 * If they are too many, those from `oldest` on are kept (-1: none), and the last ones in any case. */
export function joined(known: readonly number[], last: number[], oldest: number): number[] {
  const end = known.at(-1) ?? -1;
  if (last[0] > end) {
    return last;
  }
  const hits = [...known, ...last.filter(hit => hit > end)];
  const most = hits.length > MOST_HITS ? hits.length - MOST_HITS / 2 : 0;
  return hits.slice(oldest < 0 ? most : Math.min(oldest, most));
}
