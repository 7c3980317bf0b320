/** How values are spread, as `dist.log(histogram=…)` has counted them: bars between the least and the largest. */
import { tickTexts } from './ticks';
import type { IContext } from './context';
import { el, svg } from './dom';
import { count, value } from './format';
import type { IContent, IDisposable, IExhibit } from './source';

const MIME = 'application/vnd.jupyter-dist.histogram+json';
const WIDTH = 240;
const HEIGHT = 80;
interface IHistogram {
  counts: number[];
  low: number;
  high: number;
  mean: number | null;
  count: number;
  special: number;
}

export function isHistogram(exhibit: IExhibit): boolean {
  return exhibit.contents.some(one => one.mime === MIME);
}

/** One histogram as an element. */
export class HistogramNode implements IDisposable {
  readonly node = el('div', { class: 'jpd-exhibit jpd-histogram' });
  private _shown: IContent | undefined;

  constructor(
    private readonly _context: IContext,
    exhibit: IExhibit,
    private readonly _attempt: number
  ) {
    this.update(exhibit);
  }

  update(exhibit: IExhibit): void {
    const content = exhibit.contents.find(one => one.mime === MIME);
    const same = JSON.stringify(content) === JSON.stringify(this._shown);
    this._shown = content;
    if (content && !same) {
      void this._draw(content, exhibit.ranks[0]);
    }
  }

  dispose(): void {
    this._shown = undefined;
  }

  private async _draw(content: IContent, rank: number): Promise<void> {
    const { source, trans } = this._context;
    let told: unknown = content.json;
    try {
      if (content.base64) {
        told = JSON.parse(atob(content.base64));
      } else if (content.hash) {
        told = JSON.parse(await (await source.content(rank, content, this._attempt)).text());
      }
    } catch {
      told = null;
    }
    if (this._shown !== content) {
      return;
    }
    const found = checked(told);
    this.node.replaceChildren(
      found
        ? el(
            'figure',
            {},
            el('div', { class: 'jpd-muted jpd-axis-top' }, count(Math.max(...found.counts))),
            drawing(found),
            axis(found),
            el('figcaption', { class: 'jpd-muted' }, caption(found, trans))
          )
        : el('span', { class: 'jpd-muted' }, trans('The histogram cannot be shown.'))
    );
  }
}

/** What a rank wrote, if it is what it should be. */
function checked(told: unknown): IHistogram | null {
  const one = told as IHistogram | null;
  const numbers = [one?.low, one?.high, one?.count, one?.special];
  const fits =
    Array.isArray(one?.counts) &&
    one.counts.length > 0 &&
    one.counts.length <= 1000 &&
    [...one.counts, ...numbers].every(each => typeof each === 'number' && Number.isFinite(each));
  return fits ? (one as IHistogram) : null;
}

/** The least value, the middle and the largest, below their places. */
function axis({ low, high }: IHistogram): HTMLElement {
  const ticks = tickTexts([...new Set([low, low / 2 + high / 2, high])]);
  return el('div', { class: 'jpd-histogram-axis' }, ...ticks.map(tick => el('span', {}, tick)));
}

function caption({ mean, count: all, special }: IHistogram, trans: IContext['trans']) {
  return [
    typeof mean === 'number' ? trans('mean %1', value(mean)) : null,
    trans('%1 values', count(all)),
    special ? trans('%1 not finite', count(special)) : null
  ]
    .filter(Boolean)
    .join(' · ');
}

function drawing({ counts }: IHistogram): SVGElement {
  const most = Math.max(...counts, 1);
  const width = WIDTH / counts.length;
  const bars = counts.map((number, i) => {
    const height = (HEIGHT * Math.max(0, number)) / most;
    return `M${i * width} ${HEIGHT}v${-height}h${width * 0.9}v${height}z`;
  });
  const box = {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    'aria-hidden': 'true'
  };
  return svg('svg', box, svg('path', { d: bars.join('') }));
}
