/** What ranks show besides text, place by place of the cell: equal ones once, others side by side or one large. */
import type { IContext } from './context';
import { button, el, setAttribute, setText } from './dom';
import { ExhibitNode, othersText } from './exhibit';
import { ranges } from './format';
import { RanksShown } from './ranksshown';
import { resultsNode } from './results';
import { Rereading } from './rereading';
import type { IDisplay, IExhibit, IResult } from './source';
import { rankVariable } from './theme';

const PAGE = 50;
/** So many of the newest are shown large at first: all that are read stand in the log as well. */
const LARGE = 12;
/** How many that differ are shown side by side at first. */
const SIDE_BY_SIDE = 12;
const LEAST_MS = 60;
/** How long one that was looked for is marked. */
const REVEALED_MS = 1500;
/** As many are drawn without a look at where they are. */
const AT_ONCE = 4;

/** All displays of the current attempt, and the results that have no richer form than text. */
export class Displays {
  readonly node = el('div', { class: 'jpd-shown' });
  private readonly _results = el('div', { class: 'jpd-slot' });
  private readonly _section: HTMLElement;
  private readonly _title = el('h4', { class: 'jpd-title' });
  private readonly _rows = el('div', { class: 'jpd-display-rows' });
  private readonly _earlier: HTMLButtonElement;
  private readonly _known = new Map<string, DisplayRow>();
  private _plain: readonly IResult[] = [];
  private _worldSize = 1;
  /** The ranks whose results stand among the displays. */
  private _rich: ReadonlySet<number> = new Set();
  private _onlyResults = false;
  private _attempt = 0;
  private _count = PAGE;
  private _most = LARGE;
  private _all: readonly IDisplay[] = [];
  private _before = 0;
  private readonly _rereading: Rereading;
  /** Some are shown whose lines have not come yet. */
  private _unplaced = false;

  /** `_told` is given what stands there now. */
  constructor(
    private readonly _context: IContext,
    private readonly _told: (displays: readonly IDisplay[]) => void = () => undefined,
    private readonly _ranks = new RanksShown()
  ) {
    const { trans, signal } = _context;
    this._rereading = new Rereading(() => this._read(), signal);
    _ranks.onChange(() => this._known.forEach(row => row.showRank(_ranks.single)));
    const more = () => {
      this._count += this._all.length > this._most ? 0 : PAGE;
      this._most += PAGE;
      this.changed();
    };
    const label = trans('Show earlier outputs');
    this._earlier = button({ label, text: label }, more, signal);
    this._earlier.hidden = true;
    this._section = el(
      'section',
      { class: 'jpd-displays', 'aria-label': trans('Displays'), hidden: true },
      this._title,
      this._earlier,
      this._rows
    );
    this.node.append(this._results, this._section);
    signal.addEventListener('abort', () => this._known.forEach(row => row.dispose()));
  }

  showResults(results: readonly IResult[], worldSize: number): void {
    this._plain = results;
    this._worldSize = worldSize;
    this._arrange();
  }

  private _arrange(): void {
    const { trans } = this._context;
    const left = this._plain.filter(
      ({ array, error, ranks }) => array || error || ranks.some(rank => !this._rich.has(rank))
    );
    this._results.replaceChildren(
      ...(left.length ? [resultsNode(left, this._worldSize, this._context)] : [])
    );
    setText(this._title, this._onlyResults ? trans('Results') : trans('Displays'));
    const alone = this._onlyResults && !left.length;
    setAttribute(this._section, 'aria-label', alone ? trans('Results') : trans('Displays'));
    this._title.hidden = this._onlyResults && left.length > 0; // under the same title as these
  }

  /** There may be others now. */
  changed(): void {
    this._rereading.changed();
  }

  /** The logs have grown, and may have the lines at which displays stand. */
  logsGrown(): void {
    if (this._unplaced) {
      this.changed();
    }
  }

  /** Bring a display into sight, and of several that differ that of a rank. */
  reveal(key: string, rank: number): void {
    const place = this._all.findIndex(display => display.key === key);
    if (place >= 0 && !this._known.has(key)) {
      this._most = this._all.length - place;
      this._show(this._all, this._attempt, this._before);
    }
    this._known.get(key)?.reveal(rank);
  }

  private async _read(): Promise<number> {
    const { source, signal } = this._context;
    const page = await source.displays({ count: this._count }).catch(() => null);
    if (page && !signal.aborted) {
      this._show(page.displays, page.attempt, page.start);
    }
    return page ? LEAST_MS : 0;
  }

  private _show(all: readonly IDisplay[], attempt: number, earlier: number): void {
    this._all = all;
    this._before = earlier;
    const displays = all.slice(-this._most);
    const before = earlier + all.length - displays.length;
    if (attempt !== this._attempt) {
      this._attempt = attempt;
      this._known.forEach(row => row.dispose());
      this._known.clear();
    }
    const { trans } = this._context;
    const onlyResults = all.every(display => display.result);
    const { top, bottom } = this.node.parentElement?.getBoundingClientRect() ?? {
      top: 0,
      bottom: 0
    };
    const atOnce = bottom > 0 && top < window.innerHeight && displays.length <= AT_ONCE;
    const nodes = displays.map(display => {
      const known = this._known.get(display.key);
      const row = known ?? new DisplayRow(this._context, attempt, atOnce, this._ranks);
      this._known.set(display.key, row);
      row.update(display, !onlyResults);
      return row.node;
    });
    const kept = new Set(displays.map(display => display.key));
    for (const [key, row] of this._known) {
      if (!kept.has(key)) {
        row.dispose();
        this._known.delete(key);
      }
    }
    place(this._rows, nodes);
    this._section.hidden = !displays.length;
    this._earlier.hidden = !before;
    const label =
      before === 1 ? trans('Show 1 earlier output') : trans('Show %1 earlier outputs', before);
    setText(this._earlier, label);
    this._unplaced = all.some(
      ({ result, places = [], exhibits }) =>
        !result && places.length < exhibits.flatMap(one => one.ranks).length
    );
    this._told(all);
    const results = displays.filter(display => display.result);
    this._onlyResults = onlyResults;
    this._rich = new Set(results.flatMap(display => display.exhibits.flatMap(one => one.ranks)));
    this._arrange();
  }
}

/** Put nodes into their order; those that stand right already are not touched. */
function place(box: HTMLElement, nodes: HTMLElement[]): void {
  nodes.forEach((node, i) => {
    if (box.children[i] !== node) {
      box.insertBefore(node, box.children[i] ?? null);
    }
  });
  while (box.children.length > nodes.length) {
    box.lastElementChild?.remove();
  }
}

/** One place of the cell: what each of the ranks shows there. */
class DisplayRow {
  readonly node = el('div', { class: 'jpd-display' });
  private readonly _abort = new AbortController();
  private readonly _what = el('div', { class: 'jpd-title', hidden: true });
  private readonly _all: HTMLButtonElement;
  private readonly _grid = el('div', { class: 'jpd-display-grid' });
  private readonly _more = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _shown: Cell[] = [];
  private _display: IDisplay | null = null;
  private _among = false;
  /** The rank that is shown large: it stays so whatever the others show. */
  private _large: number | null;

  constructor(
    private readonly _context: IContext,
    private readonly _attempt: number,
    private readonly _atOnce: boolean,
    ranks: RanksShown
  ) {
    this._large = ranks.single;
    const label = _context.trans('Show all ranks');
    const showAll = () => (ranks.single === null ? this.showRank(null) : ranks.select(null));
    this._all = button({ label, text: label, class: 'jpd-toggle' }, showAll, this._abort.signal);
    this.node.append(this._what, this._all, this._grid, this._more);
  }

  dispose(): void {
    this._abort.abort();
    this._shown.forEach(cell => cell.dispose());
    this.node.remove();
  }

  /** `among`: other things than results are shown as well. */
  update(display: IDisplay, among = this._among): void {
    this._display = display;
    this._among = among;
    const { trans } = this._context;
    const { exhibits, line } = display;
    const what = display.result
      ? trans('Result')
      : line
        ? trans('Displayed by line %1', line)
        : trans('Display');
    this.node.setAttribute('role', 'group');
    this.node.setAttribute('aria-label', what);
    this._what.hidden = !(display.result && among);
    setText(this._what, what);
    const several = exhibits.length > 1;
    const large = several
      ? exhibits.findIndex(({ ranks }) => this._large !== null && ranks.includes(this._large))
      : -1;
    const seen = large >= 0 ? [exhibits[large]] : exhibits.slice(0, SIDE_BY_SIDE);
    setAttribute(this.node, 'data-several', several && large < 0 ? '' : null);
    this._all.hidden = large < 0;
    while (this._shown.length > seen.length) {
      this._shown.pop()?.dispose();
    }
    seen.forEach((exhibit, i) => {
      const known = this._shown[i];
      if (known) {
        known.update(exhibit);
      } else {
        const cell = new Cell(this._context, exhibit, this._attempt, this._atOnce, rank =>
          this.showRank(this._large === rank ? null : rank)
        );
        this._shown.push(cell);
        this._grid.appendChild(cell.node);
      }
    });
    const left =
      display.more_ranks +
      (large >= 0 ? 0 : exhibits.slice(seen.length).flatMap(one => one.ranks).length);
    this._more.hidden = !left;
    setText(this._more, othersText(left, trans));
  }

  reveal(rank: number): void {
    this.showRank(rank);
    this.node.scrollIntoView({ block: 'nearest' });
    this.node.classList.add('jpd-display-revealed');
    setTimeout(() => this.node.classList.remove('jpd-display-revealed'), REVEALED_MS);
  }

  /** Show one rank large; with null, all side by side. */
  showRank(rank: number | null): void {
    this._large = rank;
    if (this._display) {
      this.update(this._display);
    }
  }
}

/** What some ranks show, and which they are. */
class Cell {
  readonly node: HTMLElement;
  private readonly _ranks = el('span', { class: 'jpd-ranks' });
  private readonly _exhibit: ExhibitNode;

  constructor(
    context: IContext,
    exhibit: IExhibit,
    attempt: number,
    atOnce: boolean,
    enlarge: (rank: number) => void
  ) {
    this._exhibit = new ExhibitNode(context, exhibit, attempt, atOnce);
    this.node = el('div', { class: 'jpd-display-cell' }, this._ranks, this._exhibit.node);
    this._exhibit.node.addEventListener('dblclick', () => enlarge(this._first), {
      signal: context.signal
    });
    this.update(exhibit);
  }

  private _first = 0;

  update(exhibit: IExhibit): void {
    this._first = exhibit.ranks[0];
    setText(this._ranks, `[${ranges(exhibit.ranks)}]`);
    const single = exhibit.ranks.length === 1;
    this._ranks.style.color = single ? `var(${rankVariable(this._first)})` : '';
    this._exhibit.update(exhibit);
  }

  dispose(): void {
    this._exhibit.dispose();
    this.node.remove();
  }
}
