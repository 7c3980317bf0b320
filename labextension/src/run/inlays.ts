/** What ranks show, between the lines of a log: small, at the place where it was shown. */
import type { IBundleHost } from './bundles';
import type { IContext } from './context';
import { el, setAttribute, setText } from './dom';
import { ExhibitNode, othersText, PICTURES } from './exhibit';
import { ranges } from './format';
import type { IContent, IDisplay, IDisposable, IExhibit, IPlace, LogOf } from './source';
import type { IHighRows } from './rowheights';
import { rankVariable } from './theme';

/** So many that differ stand side by side in a log; where displays are shown large there are more. */
const SIDE_BY_SIDE = 8;
const SMALL = 200_000;
/** Before it is drawn. */
const GUESSED_PX = 120;

/** What is drawn of a display, and of which ranks. */
interface IPiece {
  display: string;
  ranks: number[];
  exhibit: IExhibit;
}

/** One place of a log. */
export interface IInlay {
  first: number;
  /** So many lines say in text what is shown; 0: it stands below the first one. */
  count: number;
  pieces: IPiece[];
}

/** What stands at a row: in its place, or below it. */
export interface IPlaced {
  node: HTMLElement;
  alone: boolean;
}

/** Of its types that which fits between lines; null for what is better seen large, such as a chart. */
function small({ contents }: IExhibit, host: IBundleHost): IContent | null {
  const known = contents.filter(one => !one.lost);
  if (known.some(({ mime }) => /^application\/vnd\..*json$/.test(mime))) {
    return null;
  }
  const picture = known.find(({ mime }) => PICTURES.includes(mime));
  const text = known.find(
    ({ mime, bytes = 0 }) =>
      ['text/html', 'text/markdown', 'text/latex'].includes(mime) &&
      bytes <= SMALL &&
      host.shows(mime)
  );
  return picture ?? text ?? null;
}

/** Where displays stand in a log, in the order of its lines. Results stand in none. */
export function inlaysOf(displays: readonly IDisplay[], of: LogOf, host: IBundleHost): IInlay[] {
  const found: IInlay[] = [];
  for (const { key, places = [], exhibits } of displays) {
    const drawn = exhibits.flatMap(exhibit => {
      const content = small(exhibit, host);
      const plain = exhibit.contents.find(one => one.mime === 'text/plain');
      return content ? [{ ...exhibit, contents: plain ? [content, plain] : [content] }] : [];
    });
    for (const { first, count, ranks } of spotsOf(places, of)) {
      const pieces = drawn.flatMap(exhibit => {
        const mine = exhibit.ranks.filter(rank => ranks.has(rank));
        return mine.length ? [{ display: key, ranks: mine, exhibit }] : [];
      });
      if (pieces.length) {
        found.push({ first, count, pieces });
      }
    }
  }
  return merged(found.sort((one, other) => one.first - other.first));
}

interface ISpot {
  first: number;
  count: number;
  ranks: Set<number>;
}

/** The places of one display: neighbouring lines of several ranks, who show it one after the other, are one. */
function spotsOf(places: readonly IPlace[], of: LogOf): ISpot[] {
  const spots = places
    .filter(({ rank }) => of === null || of === rank)
    .map(({ rank, line, lines, row, rows }) =>
      of === null ? { rank, first: row, count: rows } : { rank, first: line, count: lines }
    )
    .sort((one, other) => one.first - other.first);
  const found: ISpot[] = [];
  for (const { rank, first, count } of spots) {
    const last = found[found.length - 1];
    const touches =
      last &&
      (first === last.first || (count > 0 && last.count > 0 && first <= last.first + last.count));
    if (touches) {
      last.count = Math.max(last.count, first + count - last.first);
      last.ranks.add(rank);
    } else {
      found.push({ first, count, ranks: new Set([rank]) });
    }
  }
  return found;
}

/** Those that share a line are one. */
function merged(inlays: IInlay[]): IInlay[] {
  const found: IInlay[] = [];
  for (const inlay of inlays) {
    const last = found[found.length - 1];
    if (last && inlay.first < last.first + Math.max(1, last.count)) {
      last.count = Math.max(last.count, inlay.first + inlay.count - last.first);
      last.pieces.push(...inlay.pieces);
    } else {
      found.push({ ...inlay, pieces: [...inlay.pieces] });
    }
  }
  return found;
}

/** The inlays of one log as elements, and how high they are. */
export class Inlays implements IDisposable {
  private _all: IInlay[] = [];
  private readonly _nodes = new Map<number, InlayNode>();
  /** By their first line. */
  private readonly _heights = new Map<number, number>();
  private readonly _observer: ResizeObserver;

  constructor(
    private readonly _context: IContext,
    /** Say whose pieces are shown. */
    private readonly _ranks: boolean,
    private readonly _enlarge: (display: string, rank: number) => void,
    /** Called before the first and after the last of what makes rows higher or lower. */
    private readonly _resized: (change: () => void) => void
  ) {
    this._observer = new ResizeObserver(() => this._measure());
  }

  get none(): boolean {
    return !this._all.length;
  }

  show(inlays: IInlay[]): void {
    this._resized(() => {
      this._all = inlays;
      const firsts = new Set(inlays.map(({ first }) => first));
      for (const [first, node] of this._nodes) {
        if (!firsts.has(first)) {
          node.dispose();
          this._nodes.delete(first);
        }
      }
      inlays.forEach(inlay => this._nodes.get(inlay.first)?.update(inlay));
    });
  }

  /** Of a list with that many rows. `texts`: the lines that say the same are there as well. */
  stretches(rows: number, rowHeight: number, texts: boolean): IHighRows[] {
    const found: IHighRows[] = [];
    for (const { first, count } of this._all) {
      const own = this._heights.get(first) ?? GUESSED_PX;
      if (first + Math.max(1, count) > rows) {
        break; // its lines are not here yet
      }
      found.push(
        count && !texts
          ? { first, count, height: own }
          : { first: first + Math.max(1, count) - 1, count: 1, height: own + rowHeight }
      );
    }
    return found;
  }

  /** What stands at a row that is stretched. */
  node(row: number, texts: boolean): IPlaced | null {
    const inlay = this._all.find(({ first, count }) =>
      count && !texts ? first === row : first + Math.max(1, count) - 1 === row
    );
    if (!inlay) {
      return null;
    }
    if (!this._nodes.has(inlay.first)) {
      this._make(inlay);
    }
    const node = this._nodes.get(inlay.first)?.node;
    return node ? { node, alone: inlay.count > 0 && !texts } : null;
  }

  private _make(inlay: IInlay): void {
    const made = new InlayNode(this._context, this._ranks, this._enlarge);
    this._nodes.set(inlay.first, made);
    this._observer.observe(made.node);
    made.update(inlay);
  }

  dispose(): void {
    this._observer.disconnect();
    this._nodes.forEach(node => node.dispose());
    this._nodes.clear();
  }

  private _measure(): void {
    const changed: [number, number][] = [];
    for (const [first, { node }] of this._nodes) {
      const height = node.isConnected ? node.offsetHeight : 0; // out of sight it is as high as it was
      if (height && Math.abs(height - (this._heights.get(first) ?? -1)) >= 1) {
        changed.push([first, height]);
      }
      this._nodes.get(first)?.measure();
    }
    if (changed.length) {
      this._resized(() => changed.forEach(([first, height]) => this._heights.set(first, height)));
    }
  }
}

/** What ranks show at one place, side by side where they differ. */
class InlayNode implements IDisposable {
  readonly node = el('div', { class: 'jpd-inlay' });
  private readonly _cells: Cell[] = [];
  private readonly _more = el('span', { class: 'jpd-muted', hidden: true });

  constructor(
    private readonly _context: IContext,
    private readonly _ranks: boolean,
    private readonly _enlarge: (display: string, rank: number) => void
  ) {
    this.node.appendChild(this._more);
  }

  update({ pieces }: IInlay): void {
    const seen = pieces.slice(0, SIDE_BY_SIDE);
    while (this._cells.length > seen.length) {
      this._cells.pop()?.dispose();
    }
    seen.forEach((piece, i) => {
      if (!this._cells[i]) {
        this._cells[i] = new Cell(this._context, piece, this._ranks, this._enlarge);
        this.node.insertBefore(this._cells[i].node, this._more);
      }
      this._cells[i].update(piece);
    });
    setAttribute(this.node, 'data-several', pieces.length > 1 ? '' : null);
    const left = pieces.slice(seen.length).flatMap(({ ranks }) => ranks).length;
    this._more.hidden = !left;
    setText(this._more, othersText(left, this._context.trans));
  }

  measure(): void {
    this._cells.forEach(cell => cell.measure());
  }

  dispose(): void {
    this._cells.forEach(cell => cell.dispose());
    this.node.remove();
  }
}

class Cell implements IDisposable {
  readonly node: HTMLElement;
  private readonly _whose = el('span', { class: 'jpd-rank' });
  private readonly _button: HTMLButtonElement;
  private readonly _exhibit: ExhibitNode;
  private _piece: IPiece;

  constructor(
    private readonly _context: IContext,
    piece: IPiece,
    private readonly _ranks: boolean,
    enlarge: (display: string, rank: number) => void
  ) {
    this._piece = piece;
    this._exhibit = new ExhibitNode(_context, piece.exhibit, null, true, true);
    this._button = el('button', { type: 'button', class: 'jpd-inlay-open' }, this._exhibit.node);
    this._button.addEventListener(
      'click',
      () => enlarge(this._piece.display, this._piece.ranks[0]),
      { signal: _context.signal }
    );
    this._whose.hidden = !_ranks;
    this.node = el('div', { class: 'jpd-inlay-cell' }, this._whose, this._button);
  }

  update(piece: IPiece): void {
    const { trans } = this._context;
    this._piece = piece;
    const ranks = ranges(piece.ranks);
    setText(this._whose, `[${ranks}]`);
    this._whose.style.color =
      piece.ranks.length === 1 ? `var(${rankVariable(piece.ranks[0])})` : '';
    const label = this._ranks ? trans('Enlarge the output of ranks %1', ranks) : trans('Enlarge');
    setAttribute(this._button, 'aria-label', label);
    setAttribute(this._button, 'title', trans('Enlarge'));
    this._exhibit.update(piece.exhibit);
  }

  /** Whether all of it is seen. */
  measure(): void {
    const { scrollHeight, clientHeight } = this._exhibit.node;
    this._button.toggleAttribute('data-cut', scrollHeight > clientHeight + 1);
  }

  dispose(): void {
    this._exhibit.dispose();
    this.node.remove();
  }
}
