import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { framed } from '../../src/run/bundles';
import type { IContext } from '../../src/run/context';
import { Displays } from '../../src/run/displays';
import { RanksShown } from '../../src/run/ranksshown';
import { chosen } from '../../src/run/exhibit';
import type { IContent, IDisplay } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { FakeSource, runInfo } from './fakesource';

let abort: AbortController;
let source: FakeSource;
let ranks: RanksShown;
const made: string[] = [];
const revoked: string[] = [];

function display(key: string, ...exhibits: [number[], IContent[]][]): IDisplay {
  return {
    key,
    line: 3,
    result: key.startsWith('result'),
    more_ranks: 0,
    exhibits: exhibits.map(([ranks, contents]) => ({ ranks, contents, time: 1, metadata: {} }))
  };
}

const html = (text: string): IContent => ({ mime: 'text/html', text });
const plain = (text: string): IContent => ({ mime: 'text/plain', text });
const png = (hash: string): IContent => ({ mime: 'image/png', hash, offset: 0, bytes: 9 });

function part(): Displays {
  const context: IContext = {
    source,
    trans: english,
    signal: abort.signal,
    announce: () => undefined,
    root: document.body,
    bundles: {
      shows: mime => mime === 'text/html' || mime === 'application/vnd.vega.v5+json',
      render: async (place, mime, data) => {
        expect(place.isConnected).toBe(true);
        place.textContent = `${mime}: ${JSON.stringify(data)}`;
        return { dispose: () => undefined };
      }
    }
  };
  ranks = new RanksShown();
  const found = new Displays(context, () => undefined, ranks);
  document.body.appendChild(found.node);
  return found;
}

const texts = (found: Displays) =>
  [...found.node.querySelectorAll('.jpd-display')].map(row =>
    [...row.querySelectorAll('.jpd-display-cell')].map(cell => cell.textContent)
  );

async function shows(found: Displays, ...displays: IDisplay[]): Promise<void> {
  source.displayList = displays;
  found.changed();
  await vi.advanceTimersByTimeAsync(200);
}

beforeEach(() => {
  vi.useFakeTimers();
  abort = new AbortController();
  source = new FakeSource(runInfo(3));
  made.length = revoked.length = 0;
  URL.createObjectURL = () => `blob:${made.push('url')}`;
  URL.revokeObjectURL = url => void revoked.push(url);
  HTMLImageElement.prototype.decode = async () => undefined;
  Element.prototype.getBoundingClientRect = () => new DOMRect(0, 0, 100, 100);
});
afterEach(() => {
  abort.abort();
  document.body.replaceChildren();
  vi.useRealTimers();
});

describe('displays', () => {
  it('shows equal ones once, others side by side, and a result that is rich in place of its text', async () => {
    const found = part();
    found.showResults(
      [
        { ranks: [0, 1], repr: 'frame', error: null, bytes: 1 },
        { ranks: [2], repr: 'None', error: null, bytes: 1 }
      ],
      3
    );
    expect(found.node.textContent).toContain('frame');
    await shows(
      found,
      display('1/0', [
        [0, 1, 2],
        [html('same'), plain('text')]
      ]),
      display('2/0', [[0], [plain('one')]], [[1, 2], [plain('two')]]),
      display('result/0', [[0, 1], [html('table')]])
    );
    expect(texts(found)).toEqual([
      ['[0-2]text/html: "same"'],
      ['[0]one', '[1-2]two'],
      ['[0-1]text/html: "table"']
    ]);
    expect(found.node.querySelector('.jpd-results')?.textContent).toContain('None');
    expect(found.node.querySelector('.jpd-results')?.textContent).not.toContain('frame');
  });

  it('enlarges one rank, which stays large whatever comes', async () => {
    const found = part();
    const row = (word: string) =>
      display('1/0', [[0], [plain('one')]], [[1], [plain(word)]], [[2], [plain('three')]]);
    await shows(found, row('two'));
    const all = found.node.querySelector('.jpd-display > button') as HTMLButtonElement;
    expect(all.hidden).toBe(true);
    ranks.select([1]);
    expect(texts(found)).toEqual([['[1]two']]);
    await shows(found, row('new'));
    expect(texts(found)).toEqual([['[1]new']]);
    all.click();
    await vi.advanceTimersByTimeAsync(1);
    expect([ranks.only, texts(found)[0].length]).toEqual([null, 3]);
    // What was looked for in the log is large, and the ranks that are shown stay.
    found.reveal('1/0', 2);
    expect([ranks.only, texts(found)]).toEqual([null, [['[2]three']]]);
    all.click();
    await vi.advanceTimersByTimeAsync(1);
    expect(texts(found)[0]).toHaveLength(3);
  });

  it('shows the newest large, and an earlier one when it is looked for', async () => {
    const found = part();
    Element.prototype.scrollIntoView = () => undefined;
    const all = Array.from({ length: 30 }, (_, i) => display(`${i}/0`, [[0], [plain(`${i}`)]]));
    await shows(found, ...all);
    expect(texts(found)).toHaveLength(12);
    expect(found.node.textContent).toContain('Show 18 earlier outputs');
    found.reveal('15/0', 0);
    expect(texts(found)).toHaveLength(15);
    found.node.querySelector<HTMLElement>('.jpd-displays > button')?.click();
    await vi.advanceTimersByTimeAsync(200);
    expect(texts(found)).toHaveLength(30);
  });

  it('reads a picture once, lets go of the old one, and says what is lost', async () => {
    const found = part();
    await shows(found, display('1/0', [[1], [png('a'), plain('alt text')]]));
    const image = found.node.querySelector('img');
    expect(image?.alt).toBe('alt text');
    await shows(found, display('1/0', [[1], [png('a'), plain('alt text')]]));
    expect(found.node.querySelector('img')).toBe(image);
    expect(source.asked).toEqual(['content 1 a']);
    await shows(found, display('1/0', [[1, 2], [png('b')]]));
    expect(found.node.querySelector('img')?.src).toBe('blob:2');
    expect(revoked).toEqual(['blob:1']);
    await shows(found, display('1/0', [[1, 2], [{ ...png('c'), lost: true }]]));
    expect(texts(found)).toEqual([['[1-2]This output was lost.']]);
    await shows(found);
    expect(found.node.querySelectorAll('.jpd-display')).toHaveLength(0);
    expect(revoked).toEqual(['blob:1', 'blob:2']);
  });

  it('reads a picture once for all places where it stands, and again once it stood nowhere', async () => {
    const found = part();
    const [one, other] = ['1/0', '2/0'].map(key => display(key, [[0], [png('a')]]));
    await shows(found, one, other);
    const addresses = () => [...found.node.querySelectorAll('img')].map(image => image.src);
    expect(addresses()).toEqual(['blob:1', 'blob:1']);
    expect(source.asked).toEqual(['content 0 a']);
    await shows(found, other);
    expect(revoked).toEqual([]);
    await shows(found);
    expect(revoked).toEqual(['blob:1']);
    source.content = async () => Promise.reject(new Error('away'));
    await shows(found, one);
    expect(found.node.textContent).toContain('away');
    source.content = async () => new Blob(['x'], { type: 'image/png' });
    await shows(found, other);
    expect(addresses()).toEqual(['blob:2']);
  });
});

describe('the type that is drawn', () => {
  const host = {
    ...framed,
    shows: (mime: string) => mime === 'text/html' || mime.includes('vega')
  };
  const pick = (...contents: IContent[]) =>
    chosen({ ranks: [0], time: 0, metadata: {}, contents }, host)?.mime;

  it('is the richest that the host draws', () => {
    expect(pick(plain('t'), png('a'), html('h'))).toBe('text/html');
    expect(pick(plain('t'), png('a'))).toBe('image/png');
    expect(pick(plain('t'), { mime: 'application/vnd.vega.v5+json', json: {} })).toContain('vega');
    expect(pick(plain('t'), { mime: 'application/vnd.plotly.v1+json', json: {} })).toBe(
      'text/plain'
    );
    expect(pick({ mime: 'application/javascript', text: 'alert(1)' })).toBeUndefined();
    expect(pick(plain('t'), { ...html('h'), lost: true })).toBe('text/plain');
  });
});

describe('a frame', () => {
  it('runs no script and fetches nothing', () => {
    const place = document.createElement('div');
    void framed.render(place, 'text/html', '<b>x</b>', undefined);
    const frame = place.querySelector('iframe');
    expect(frame?.getAttribute('sandbox')).toBe('allow-same-origin');
    expect(frame?.getAttribute('srcdoc')).toContain("default-src 'none'");
  });
});
