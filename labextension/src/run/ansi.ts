/** A line of a terminal as styled pieces of plain text.
 *
 * Colours and weights (SGR) are kept. What moves the cursor within the line, or erases from there, is
 * done: carriage returns and backspaces of a progress bar, "erase to the end". Every other escape is
 * dropped, and other control characters are shown as pictures of themselves.
 */

export interface IStyle {
  /** 0–15: the theme's colours; otherwise a CSS colour. */
  fg?: number | string;
  bg?: number | string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
  inverse?: boolean;
}

export interface IPiece extends IStyle {
  text: string;
}

/** Longer lines are cut here. */
export const MAX_LINE = 4000;
const MAX_RAW = 200_000;
const PLAIN: IStyle = {};

// CSI … final byte; OSC, DCS, SOS, PM, APC … to BEL or ST (or the line's end); other two-byte escapes.
const ESCAPE =
  // eslint-disable-next-line no-control-regex
  /(?:\x1b\[|\x9b)([0-9;:<=>?]*)[ -/]*([@-~]?)|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]?/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** The line as a terminal would show it in the end. `cut` is how many characters were left out. */
export function parseLine(raw: string): { pieces: IPiece[]; cut: number } {
  let cut = 0;
  let text = raw;
  if (text.length > MAX_RAW) {
    // Of a progress bar's history only the end can still be seen.
    const back = text.lastIndexOf('\r', text.length - 2);
    const start = text.length - back < MAX_RAW ? Math.max(0, back) : 0;
    cut += start ? 0 : text.length - MAX_RAW;
    text = text.slice(start, start + MAX_RAW);
  }
  text = text.replace(/[\r\n]+$/, '');
  // eslint-disable-next-line no-control-regex
  if (!/[\x00-\x08\x0b-\x1f\x7f-\x9f]/.test(text)) {
    return limit(text ? [{ text }] : [], cut);
  }
  return limit(new Cells().play(text), cut);
}

/** The line without any style. */
export function plainLine(raw: string): string {
  return parseLine(raw)
    .pieces.map(piece => piece.text)
    .join('');
}

/** One line of a terminal: characters with their styles, and a cursor. */
class Cells {
  private readonly _chars: string[] = [];
  private readonly _styles: IStyle[] = [];
  private _style: IStyle = {};
  private _at = 0;

  play(text: string): IPiece[] {
    let at = 0;
    for (const match of text.matchAll(ESCAPE)) {
      this._write(text.slice(at, match.index));
      at = match.index + match[0].length;
      if (match[2] === 'm') {
        this._style = sgr(this._style, match[1]);
      } else if (match[2]) {
        this._move(match[2], match[1]);
      }
    }
    this._write(text.slice(at));
    return this._pieces();
  }

  private _write(text: string): void {
    for (const char of text) {
      if (char === '\r') {
        this._at = 0;
      } else if (char === '\b') {
        this._at = Math.max(0, this._at - 1);
      } else {
        this._pad(this._at);
        this._chars[this._at] = char.replace(CONTROL, picture);
        this._styles[this._at++] = this._style;
      }
    }
  }

  private _pad(end: number): void {
    while (this._chars.length < end) {
      this._chars.push(' ');
      this._styles.push(PLAIN);
    }
  }

  private _move(final: string, count: string): void {
    const by = Math.min(Number(count) || 1, MAX_LINE);
    if (final === 'C') {
      this._at = Math.min(this._at + by, MAX_RAW);
    } else if (final === 'D') {
      this._at = Math.max(0, this._at - by);
    } else if (final === 'G') {
      this._at = by - 1;
    } else if (final === 'K') {
      const how = Number(count) || 0;
      if (how !== 1) {
        this._cut(this._at);
      }
      if (how) {
        const blank = Math.min(this._at + 1, this._chars.length);
        this._chars.fill(' ', 0, blank);
        this._styles.fill(PLAIN, 0, blank);
      }
    }
  }

  private _cut(end: number): void {
    if (this._chars.length > end) {
      this._chars.length = this._styles.length = end;
    }
  }

  private _pieces(): IPiece[] {
    const pieces: IPiece[] = [];
    this._chars.forEach((char, i) => {
      if (i && this._styles[i] === this._styles[i - 1]) {
        pieces[pieces.length - 1].text += char;
      } else {
        pieces.push({ ...this._styles[i], text: char });
      }
    });
    return pieces;
  }
}

function picture(char: string): string {
  const code = char.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? '\u2421' : '\ufffd';
}

function limit(pieces: IPiece[], already: number): { pieces: IPiece[]; cut: number } {
  let room = MAX_LINE;
  let cut = already;
  const kept: IPiece[] = [];
  for (const piece of pieces) {
    if (piece.text.length > room) {
      cut += piece.text.length - room;
    }
    if (room > 0) {
      kept.push(piece.text.length > room ? { ...piece, text: piece.text.slice(0, room) } : piece);
    }
    room = Math.max(0, room - piece.text.length);
  }
  return { pieces: kept, cut };
}

function sgr(style: IStyle, parameters: string): IStyle {
  const next: IStyle = { ...style };
  const codes = parameters.split(/[;:]/).map(code => Number(code) || 0);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i];
    if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, i + 1);
      next[code === 38 ? 'fg' : 'bg'] = colour;
      i += used;
    } else {
      simple(next, code);
    }
  }
  return next;
}

function simple(style: IStyle, code: number): void {
  if (code === 0) {
    for (const key of Object.keys(style) as (keyof IStyle)[]) {
      delete style[key];
    }
  } else if (code >= 30 && code <= 37) {
    style.fg = code - 30;
  } else if (code >= 90 && code <= 97) {
    style.fg = code - 82;
  } else if (code >= 40 && code <= 47) {
    style.bg = code - 40;
  } else if (code >= 100 && code <= 107) {
    style.bg = code - 92;
  } else if (code === 39) {
    delete style.fg;
  } else if (code === 49) {
    delete style.bg;
  } else if (code === 22) {
    delete style.bold;
    delete style.dim;
  } else {
    const flags: Record<number, keyof IStyle> = {
      1: 'bold',
      2: 'dim',
      3: 'italic',
      4: 'underline',
      7: 'inverse',
      9: 'strike'
    };
    if (code in flags) {
      (style as Record<string, boolean>)[flags[code]] = true;
    } else if (code - 20 in flags) {
      delete style[flags[code - 20]];
    }
  }
}

/** The colour after 38 or 48, and how many codes it took. */
function extended(codes: number[], at: number): [number | string | undefined, number] {
  const byte = (n: number | undefined) => Math.min(255, n ?? 0);
  if (codes[at] === 2) {
    return [`rgb(${byte(codes[at + 1])} ${byte(codes[at + 2])} ${byte(codes[at + 3])})`, 4];
  }
  if (codes[at] === 5) {
    return [indexed(byte(codes[at + 1])), 2];
  }
  return [undefined, 1];
}

function indexed(n: number): number | string {
  if (n < 16) {
    return n;
  }
  if (n >= 232) {
    const grey = 8 + 10 * (n - 232);
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const level = (k: number) => (k ? 55 + 40 * k : 0);
  const cube = n - 16;
  return `rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`;
}
