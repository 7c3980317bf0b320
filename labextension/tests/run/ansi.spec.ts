import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_LINE, parseLine, plainLine } from '../../src/run/ansi';
import { rowNode } from '../../src/run/logrows';
import { english } from '../../src/run/trans';

describe('a line of a terminal', () => {
  it.each([
    ['plain', 'plain'],
    ['\x1b[31mred\x1b[0m', 'red'],
    ['a\x1b]0;title\x07b', 'ab'],
    ['a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b', 'alinkb'],
    ['a\x1b[2Kb\x1b[1;3Hc', ' bc'],
    ['downloading 10%\rdone\x1b[K', 'done'],
    ['abc\x1b[2D\x1b[1Kx', ' xc'],
    ['a\x1b[3Cb\x1b[Gc', 'c   b'],
    ['\x1b[99999999Cx\x1b[K', `${' '.repeat(4000)}`],
    // Keras goes back by as many characters as there are, and then to the beginning all the same.
    ['1/9 ====\b\b\b\b\b\b\b\b\r2/9 ==', '2/9 ===='],
    ['\ba\bb', 'b'],
    ['unfinished \x1b[31', 'unfinished '],
    ['never closed \x1b]52;c;aGk=', 'never closed '],
    ['10%\r 50%\r100%', '100%'],
    ['long line\rab', 'abng line'],
    ['windows\r\n', 'windows'],
    ['a\x00b\x7f', 'a␀b␡'],
    ['tab\tstays', 'tab\tstays']
  ])('%j reads as %j', (raw, text) => {
    expect(plainLine(raw)).toBe(text);
  });

  it.each([
    ['\x1b[1;31mx', { bold: true, fg: 1 }],
    ['\x1b[91mx', { fg: 9 }],
    ['\x1b[38;5;208mx', { fg: 'rgb(255 135 0)' }],
    ['\x1b[38;5;9mx', { fg: 9 }],
    ['\x1b[48;2;1;2;3mx', { bg: 'rgb(1 2 3)' }],
    ['\x1b[1m\x1b[22mx', {}],
    ['\x1b[31;1m\x1b[mx', {}],
    ['\x1b[4;9;3m\x1b[24mx', { strike: true, italic: true }]
  ])('%j is styled %j', (raw, style) => {
    expect(parseLine(raw).pieces).toEqual([{ text: 'x', ...style }]);
  });

  it('keeps the colours of what was written over', () => {
    expect(parseLine('\x1b[31mabc\x1b[0m\rX').pieces).toEqual([
      { text: 'X' },
      { text: 'bc', fg: 1 }
    ]);
  });

  it('is cut, and says by how much', () => {
    const { pieces, cut } = parseLine('x'.repeat(1_000_000));
    expect(pieces[0].text.length).toBe(MAX_LINE);
    expect(cut).toBe(1_000_000 - MAX_LINE);
  });

  it('shows the end of a long progress history', () => {
    const history = Array.from({ length: 50_000 }, (_, i) => `step ${i}`).join('\r');
    expect(plainLine(history)).toBe('step 49999');
  });

  it('never leaves an escape or another control character', () => {
    const parts = fc.constantFrom(
      '\x1b[',
      '\x1b]',
      '31m',
      '\r',
      '\x07',
      '\x9b',
      '\x00',
      'a',
      ';',
      '\x1b',
      '\b',
      'K',
      'D',
      'G',
      '5',
      '\\'
    );
    fc.assert(
      fc.property(fc.array(parts, { maxLength: 30 }), pieces => {
        // eslint-disable-next-line no-control-regex
        expect(plainLine(pieces.join(''))).not.toMatch(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/);
      })
    );
  });
});

describe('a row', () => {
  const row = (text: string, match: RegExp | null = null) =>
    rowNode(
      { n: 4, rank: 1, ranks: [0, 1, 2, 5], time: 0, text },
      { ranks: true, match, trans: english }
    );

  it('folds its ranks and counts from one', () => {
    expect(row('hi').querySelector('.jpd-rank')?.textContent).toBe('[0-2,5]');
    expect(row('hi').querySelector('.jpd-number')?.textContent).toBe('5');
  });

  it('holds what the rank printed as text alone', () => {
    const node = row('<script>alert(1)</script><img src=x onerror=alert(1)>');
    expect(node.querySelector('script, img')).toBeNull();
    expect(node.textContent).toContain('<script>alert(1)</script>');
  });

  it.each([
    ['\x1b[37;41mx', 'var(--jpd-ansi-bg)', 'var(--jpd-ansi-1)'],
    ['\x1b[41mx', 'var(--jpd-ansi-bg)', 'var(--jpd-ansi-1)'],
    ['\x1b[7mx', 'var(--jpd-ansi-bg)', 'var(--jpd-ansi-fg)'],
    ['\x1b[97;48;2;10;20;200mx', 'rgb(255, 255, 255)', 'rgb(10, 20, 200)'],
    ['\x1b[48;2;250;250;200mx', 'rgb(0, 0, 0)', 'rgb(250, 250, 200)'],
    ['\x1b[38;2;1;2;3;48;2;4;5;6mx', 'rgb(1, 2, 3)', 'rgb(4, 5, 6)']
  ])('%j can be read on its background', (raw, fg, bg) => {
    const { style } = row(raw).querySelector<HTMLElement>('.jpd-text > span')!;
    expect([style.color, style.backgroundColor]).toEqual([fg, bg]);
  });

  it('marks hits across colours', () => {
    const marks = [...row('\x1b[31mfo\x1b[0mo bar foo', /foo/g).querySelectorAll('mark')];
    expect(marks.map(mark => mark.textContent)).toEqual(['fo', 'o', 'foo']);
  });
});
