/** Which lines of two cells are not the same. */
import { el } from '../run/dom';
import type { Trans } from '../run/trans';

export interface ILineChange {
  /** `-`: in the first alone; `+`: in the second alone; `…`: equal lines that are left out. */
  change: ' ' | '-' | '+' | '…';
  text: string;
}

const AROUND = 3;
/** Longer cells are compared by their first lines: a table of this size squared fits into memory. */
const MOST_LINES = 2000;

/** All lines of both, by the longest common subsequence. */
export function diffLines(first: string, second: string): ILineChange[] {
  const a = first.trimEnd().split('\n').slice(0, MOST_LINES);
  const b = second.trimEnd().split('\n').slice(0, MOST_LINES);
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] =
        a[i] === b[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines: ILineChange[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ change: ' ', text: a[i++] });
      j++;
    } else if (
      i < a.length &&
      (j >= b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])
    ) {
      lines.push({ change: '-', text: a[i++] });
    } else {
      lines.push({ change: '+', text: b[j++] });
    }
  }
  return lines;
}

/** Only what has changed, with some lines around it. */
export function folded(lines: readonly ILineChange[]): ILineChange[] {
  const near = lines.map((_, at) =>
    lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(line => line.change !== ' ')
  );
  return lines.flatMap((line, at): ILineChange[] => {
    if (near[at]) {
      return [line];
    }
    return at === 0 || near[at - 1] ? [{ change: '…', text: '…' }] : [];
  });
}

export function diffNode(first: string, second: string, title: string, trans: Trans): HTMLElement {
  const lines = folded(diffLines(first, second));
  const text = el(
    'div',
    { class: 'jpd-code-text', tabindex: 0, role: 'region', 'aria-label': title },
    ...lines.map(({ change, text }) =>
      el('span', { 'data-change': change }, change === '…' ? text : `${change} ${text}`)
    )
  );
  const added = lines.filter(line => line.change === '+').length;
  const removed = lines.filter(line => line.change === '-').length;
  return el(
    'details',
    { class: 'jpd-folded' },
    el('summary', {}, trans('%1: +%2 −%3 lines', title, added, removed)),
    text
  );
}
