/** A line of the log as an element: number, ranks, text with its colours and the hits of a search. */
import { parseLine } from './ansi';
import { el } from './dom';
import { count, ranges } from './format';
import type { IPlaced } from './inlays';
import { timeOf, withMarks, type IMarkedPiece } from './logmarks';
import type { IRowLine } from './logpages';
import { ranksOf } from './source';
import { isBright, rankVariable } from './theme';
import type { Trans } from './trans';

export interface IRowOptions {
  /** Show which ranks wrote it. */
  ranks: boolean;
  /** Show when it was printed. */
  times?: boolean;
  match: RegExp | null;
  trans: Trans;
}

/** A line, or what is shown in its place or below it; a line that is not here yet is empty. */
export function rowOf(
  line: IRowLine | undefined,
  inlay: IPlaced | null,
  options: IRowOptions
): HTMLElement {
  if (inlay?.alone) {
    const number = line ? numberNode(line, options.times) : [];
    return el('div', { class: 'jpd-row jpd-row-shown' }, ...number, inlay.node);
  }
  const row = line
    ? rowNode(line, options)
    : el('div', { class: 'jpd-row jpd-row-missing' }, '\u00a0');
  return inlay ? el('div', { class: 'jpd-row jpd-row-below' }, row, inlay.node) : row;
}

export function rowNode(line: IRowLine, options: IRowOptions): HTMLElement {
  const text = el('span', { class: 'jpd-text' });
  const { pieces: plain, cut } = parseLine(line.text);
  const pieces = withMarks(plain);
  for (const piece of options.match ? marked(pieces, options.match) : pieces) {
    text.appendChild(pieceNode(piece));
  }
  if (cut) {
    text.appendChild(
      el('span', { class: 'jpd-cut' }, options.trans(' … %1 more characters', count(cut)))
    );
  }
  const row = el('div', { class: 'jpd-row' }, ...numberNode(line, options.times));
  if (options.ranks) {
    row.appendChild(ranksNode(ranksOf(line)));
  }
  row.appendChild(text);
  return row;
}

/** What a line begins with: its number, and when it was printed. */
function numberNode({ n, number: own = n, time }: IRowLine, times?: boolean): HTMLElement[] {
  const number = el('span', { class: 'jpd-number' }, n < 0 ? '' : String(own + 1));
  if (!times) {
    return [number];
  }
  const { text, title } = timeOf(time);
  return [number, el('time', { class: 'jpd-time', title }, text)];
}

function ranksNode(ranks: number[]): HTMLElement {
  const node = el('span', { class: 'jpd-rank' }, `[${ranges(ranks)}]`);
  if (ranks.length === 1) {
    node.style.color = `var(${rankVariable(ranks[0])})`;
  }
  return node;
}

interface IMarked extends IMarkedPiece {
  hit?: boolean;
}

function pieceNode(piece: IMarked): Node {
  const { text, hit, href, level, ...style } = piece;
  const classes: string[] = [];
  const css: string[] = [];
  const [fg, bg] = style.inverse ? [style.bg ?? 'bg', style.fg ?? 'fg'] : [style.fg, style.bg];
  if (fg !== undefined || bg !== undefined) {
    css.push(`color:${textColour(fg, bg)}`);
  }
  if (bg !== undefined) {
    css.push(`background-color:${isOwn(bg) ? bg : `var(--jpd-ansi-${bg})`}`);
  }
  for (const name of ['bold', 'dim', 'italic', 'underline', 'strike'] as const) {
    if (style[name]) {
      classes.push(`jpd-${name}`);
    }
  }
  if (level) {
    classes.push(`jpd-level-${level}`);
  }
  if (!hit && !href && !classes.length && !css.length) {
    return document.createTextNode(text);
  }
  const node = el(hit ? 'mark' : 'span', { class: classes.join(' ') || null }, text);
  node.style.cssText = css.join(';');
  return href ? el('a', { href, target: '_blank', rel: 'noopener noreferrer' }, node) : node;
}

type Colour = number | string;

/** Whether the program gave the colour itself, and not one of the theme's by its number or name. */
function isOwn(colour: Colour | undefined): colour is string {
  return typeof colour === 'string' && colour.startsWith('rgb');
}

/** A rank knows nothing of the page: what it writes in any colour can be read on any background. */
function textColour(fg: Colour | undefined, bg: Colour | undefined): string {
  if (bg === undefined) {
    return isOwn(fg)
      ? `color-mix(in srgb, ${fg} 55%, var(--jpd-ansi-fg))`
      : `var(--jpd-ansi-${fg})`;
  }
  if (isOwn(fg)) {
    return fg;
  }
  // The theme's colours are made to be read on the page's, and so the page's on them.
  return isOwn(bg) ? (isBright(bg) ? '#000' : '#fff') : 'var(--jpd-ansi-bg)';
}

/** The pieces cut where a match begins or ends. */
function marked(pieces: IMarkedPiece[], match: RegExp): IMarked[] {
  const whole = pieces.map(piece => piece.text).join('');
  const spans: [number, number][] = [];
  for (const found of whole.matchAll(match)) {
    if (found[0]) {
      spans.push([found.index, found.index + found[0].length]);
    }
    if (spans.length > 200) {
      break;
    }
  }
  if (!spans.length) {
    return pieces;
  }
  const result: IMarked[] = [];
  let at = 0;
  for (const piece of pieces) {
    const end = at + piece.text.length;
    let from = at;
    for (const [first, last] of spans) {
      if (last > from && first < end) {
        if (first > from) {
          result.push({ ...piece, text: piece.text.slice(from - at, first - at) });
        }
        const start = Math.max(from, first);
        from = Math.min(end, last);
        result.push({ ...piece, text: piece.text.slice(start - at, from - at), hit: true });
      }
    }
    if (from < end) {
      result.push({ ...piece, text: piece.text.slice(from - at) });
    }
    at = end;
  }
  return result;
}

/** The number of the line that an element belongs to. */
export function lineAt(target: HTMLElement): number | null {
  const n = target.closest<HTMLElement>('.jpd-row')?.dataset.n;
  return n === undefined ? null : Number(n);
}
