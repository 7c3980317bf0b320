/** What stands out in a log's line: web addresses, which are links, and the level that a logger gave it. */
import type { IPiece } from './ansi';

export type Level = 'error' | 'warning' | 'debug';

export interface IMarkedPiece extends IPiece {
  href?: string;
  level?: Level;
}

// As Python's logging, absl, uvicorn, NCCL and most others write it: in capitals, near the line's beginning.
const LEVEL = /(?<![\w-])(CRITICAL|FATAL|ERROR|WARNING|WARN|DEBUG)(?![\w-])/;
const LEVEL_WITHIN = 72;
const LEVELS: Record<string, Level> = {
  CRITICAL: 'error',
  FATAL: 'error',
  ERROR: 'error',
  WARNING: 'warning',
  WARN: 'warning',
  DEBUG: 'debug'
};
// Of what closes a sentence or a bracket around an address, nothing belongs to it.
const ADDRESS = /https?:\/\/[^\s"'<>`{}|\\^]+[^\s"'<>`{}|\\^.,;:!?)\]]/g;

/** The pieces with addresses and the level as pieces of their own. A level that has a colour keeps it. */
export function withMarks(pieces: readonly IPiece[]): IMarkedPiece[] {
  const marked: IMarkedPiece[] = [];
  let at = 0;
  let levelled = false;
  for (const piece of pieces) {
    const { text } = piece;
    let from = 0;
    const take = (first: number, end: number, more: Partial<IMarkedPiece>) => {
      if (first > from) {
        marked.push({ ...piece, text: text.slice(from, first) });
      }
      marked.push({ ...piece, text: text.slice(first, end), ...more });
      from = end;
    };
    const level = levelled || at > LEVEL_WITHIN ? null : LEVEL.exec(text);
    if (level && at + level.index <= LEVEL_WITHIN) {
      levelled = true;
      if (piece.fg === undefined && piece.bg === undefined) {
        take(level.index, level.index + level[0].length, { level: LEVELS[level[0]] });
      }
    }
    if (text.includes('://')) {
      for (const address of text.matchAll(ADDRESS)) {
        if (address.index >= from) {
          take(address.index, address.index + address[0].length, { href: address[0] });
        }
      }
    }
    if (from < text.length) {
      marked.push({ ...piece, text: text.slice(from) });
    }
    at += text.length;
  }
  return marked;
}

/** `13:05:07.250` of that day, and the day for a tip. */
export function timeOf(seconds: number): { text: string; title: string } {
  const date = new Date(seconds * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
  const text = `${clock}.${String(date.getMilliseconds()).padStart(3, '0')}`;
  return { text, title: date.toLocaleString() };
}
