/** Pictures, texts, tables and histograms that ranks logged: one step at a time, all ranks side by side.
 *
 * Of each name only the step that is shown is there, however many were logged. */
import type { IContext } from './context';
import { button, el, setAttribute, setText } from './dom';
import { ExhibitNode, othersText } from './exhibit';
import { ranges } from './format';
import { HistogramNode, isHistogram } from './histogram';
import { RanksShown } from './ranksshown';
import { Rereading } from './rereading';
import type { IDisposable, IExhibit, ILogged, IMediaSeries } from './source';
import { rankVariable } from './theme';

/** So many names are shown at first. */
const SOME = 12;
const SIDE_BY_SIDE = 16;
const LEAST_MS = 100;

export class Media {
  readonly node: HTMLElement;
  private readonly _box = el('div', { class: 'jpd-media-series' });
  private readonly _known = new Map<string, Series>();
  private readonly _all: HTMLButtonElement;
  /** One step for all names. */
  private readonly _step: StepSlider;
  private _attempt = 0;
  private _most = SOME;
  private readonly _rereading: Rereading;

  constructor(
    private readonly _context: IContext,
    private readonly _ranks = new RanksShown()
  ) {
    const { trans, signal } = _context;
    _ranks.onChange(() => this._known.forEach(series => series.showRanks()));
    this._rereading = new Rereading(() => this._read(), signal);
    const label = trans('Show all');
    const showAll = () => {
      this._most = Infinity;
      this.changed();
    };
    this._all = button({ label, text: label }, showAll, signal);
    this._all.hidden = true;
    const all = trans('Step of all media');
    this._step = new StepSlider(
      all,
      (value, end) => {
        setText(this._step.text, trans('step %1', value));
        this._known.forEach(series => series.goTo(value, end));
      },
      signal
    );
    this.node = el(
      'section',
      { class: 'jpd-media', 'aria-label': trans('Media'), hidden: true },
      el(
        'div',
        { class: 'jpd-media-head' },
        el('h4', { class: 'jpd-title' }, trans('Media')),
        ...this._step.nodes
      ),
      this._box,
      this._all
    );
    signal.addEventListener('abort', () => this._forget());
  }

  /** There may be others now. */
  changed(): void {
    this._rereading.changed();
  }

  private async _read(): Promise<number> {
    const { source, signal } = this._context;
    const list = await source.media().catch(() => null);
    if (list && !signal.aborted) {
      this._show(list.series, list.attempt);
    }
    return list ? LEAST_MS : 0;
  }

  private _show(list: IMediaSeries[], attempt: number): void {
    if (attempt !== this._attempt) {
      this._attempt = attempt;
      this._forget();
    }
    for (const series of list.slice(0, this._most)) {
      const known = this._known.get(series.name);
      const one = known ?? new Series(this._context, series.name, attempt, this._ranks);
      this._known.set(series.name, one);
      if (!known) {
        this._box.appendChild(one.node);
      }
      one.update(series);
    }
    const several = list.filter(({ count }) => count > 1);
    const [first, last] = [
      Math.min(...several.map(one => one.first_step)),
      Math.max(...several.map(one => one.last_step))
    ];
    this._step.show(first, last, several.length > 1);
    setText(this._step.text, this._context.trans('step %1', this._step.value));
    this.node.hidden = !list.length;
    this._all.hidden = list.length <= this._most;
    const label = this._context.trans('Show all %1 names', list.length);
    setText(this._all, label);
    setAttribute(this._all, 'aria-label', label);
  }

  private _forget(): void {
    this._known.forEach(series => series.dispose());
    this._known.clear();
  }
}

/** A slider, and what it stands at. While it stands at its end it stays there. */
class StepSlider {
  readonly text = el('output', { class: 'jpd-muted jpd-media-step' });
  readonly nodes: HTMLElement[];
  private readonly _slider: HTMLInputElement;

  constructor(label: string, moved: (value: number, end: boolean) => void, signal: AbortSignal) {
    this._slider = el('input', {
      type: 'range',
      step: 1,
      class: 'jpd-media-slider',
      'aria-label': label,
      'data-lm-suppress-shortcuts': 'true' // else the notebook takes the arrows
    });
    this.nodes = [this._slider, this.text];
    this._slider.addEventListener('input', () => moved(this.value, this._atEnd), { signal });
  }

  get value(): number {
    return Number(this._slider.value);
  }

  set value(value: number) {
    this._slider.value = String(value);
  }

  say(text: string): void {
    this._slider.setAttribute('aria-valuetext', text);
  }

  show(min: number, max: number, shown: boolean): void {
    const end = this._atEnd;
    this.nodes.forEach(node => (node.hidden = !shown));
    setAttribute(this._slider, 'min', String(min));
    setAttribute(this._slider, 'max', String(max));
    if (end) {
      this.value = max;
    }
  }

  private get _atEnd(): boolean {
    const max = this._slider.getAttribute('max');
    return max === null || this.value >= Number(max);
  }
}

/** What was logged under one name, with a slider over its steps. */
class Series implements IDisposable {
  readonly node: HTMLElement;
  private readonly _slider: StepSlider;
  private readonly _grid = el('div', { class: 'jpd-media-grid' });
  private readonly _more = el('div', { class: 'jpd-muted', hidden: true });
  private readonly _cells: Cell[] = [];
  private readonly _abort = new AbortController();
  private _series: IMediaSeries | null = null;
  private _logged: [ILogged, number] | null = null;
  /** It shows the newest step, also when there is a newer one. */
  private _follows = true;
  private _wanted = 0;
  private readonly _rereading: Rereading;
  private _near = false;

  constructor(
    private readonly _context: IContext,
    private readonly _name: string,
    private readonly _attempt: number,
    private readonly _ranks: RanksShown
  ) {
    const { trans } = _context;
    const { signal } = this._abort;
    this._rereading = new Rereading(
      () => this._read(),
      signal,
      () => this._near
    );
    const moved = (index: number, end: boolean) => {
      this._wanted = index;
      this._follows = end;
      this._rereading.changed();
    };
    this._slider = new StepSlider(trans('Step of %1', _name), moved, signal);
    this.node = el(
      'div',
      { class: 'jpd-media-one', role: 'group', 'aria-label': _name },
      el(
        'div',
        { class: 'jpd-media-head' },
        el('b', { title: _name }, _name),
        ...this._slider.nodes
      ),
      this._grid,
      this._more
    );
    const observer = new IntersectionObserver(
      entries => {
        this._near = entries[entries.length - 1]?.isIntersecting ?? true;
        this._rereading.goOn();
      },
      { rootMargin: '400px' }
    );
    observer.observe(this.node);
    signal.addEventListener('abort', () => observer.disconnect());
  }

  dispose(): void {
    this._abort.abort();
    this._cells.forEach(cell => cell.dispose());
    this.node.remove();
  }

  update(series: IMediaSeries): void {
    // Ranks come to a step one after the other: the newest one may have changed.
    this._series = series;
    this._slider.show(0, series.count - 1, series.count > 1);
    this._slider.text.hidden = false;
    if (this._follows) {
      this._slider.value = this._wanted = series.count - 1;
    }
    const { top, bottom } = this.node.getBoundingClientRect();
    this._near ||= bottom > Math.max(0, top) && top < window.innerHeight; // sooner than the observer says it
    this._rereading.changed();
  }

  /** Show what was logged at a step or next to it, as if all steps were as far apart; at the end, the newest. */
  goTo(step: number, end: boolean): void {
    const { count = 1, first_step: first = 0, last_step: last = 0 } = this._series ?? {};
    const part = last > first ? Math.min(1, Math.max(0, (step - first) / (last - first))) : 1;
    this._follows = end;
    this._slider.value = this._wanted = end ? count - 1 : Math.round(part * (count - 1));
    this._rereading.changed();
  }

  private async _read(): Promise<number> {
    const { source } = this._context;
    const index = this._wanted;
    const page = await source.mediaPage(this._name, index, 1, this._attempt).catch(() => null);
    const [logged] = page?.steps ?? [];
    if (logged && !this._abort.signal.aborted) {
      this._show(logged, index);
    }
    return 0;
  }

  /** Other ranks are shown now. */
  showRanks(): void {
    if (this._logged) {
      this._show(...this._logged);
    }
  }

  private _show(logged: ILogged, index: number): void {
    this._logged = [logged, index];
    const { step, more_ranks } = logged;
    const exhibits = logged.exhibits.filter(({ ranks }) =>
      ranks.some(rank => this._ranks.has(rank))
    );
    const { trans } = this._context;
    const count = this._series?.count ?? 1;
    const text = trans('step %1', step);
    setText(this._slider.text, count > 1 ? `${text} · ${index + 1}/${count}` : text);
    this._slider.say(text);
    const seen = exhibits.slice(0, SIDE_BY_SIDE);
    while (this._cells.length > seen.length) {
      this._cells.pop()?.dispose();
    }
    seen.forEach((exhibit, i) => {
      if (this._cells[i]?.fits(exhibit) === false) {
        this._cells.splice(i).forEach(cell => cell.dispose());
      }
      if (this._cells[i]) {
        this._cells[i].update(exhibit);
      } else {
        const cell = new Cell(this._context, exhibit, this._attempt);
        this._cells.push(cell);
        this._grid.appendChild(cell.node);
      }
    });
    const left =
      (this._ranks.only ? 0 : more_ranks) +
      exhibits.slice(seen.length).flatMap(one => one.ranks).length;
    this._more.hidden = !left;
    setText(this._more, othersText(left, trans));
  }
}

/** What some ranks logged at the step, and which they are. */
class Cell implements IDisposable {
  readonly node: HTMLElement;
  private readonly _ranks = el('span', { class: 'jpd-ranks' });
  private readonly _inner: ExhibitNode | HistogramNode;

  constructor(context: IContext, exhibit: IExhibit, attempt: number) {
    this._inner = isHistogram(exhibit)
      ? new HistogramNode(context, exhibit, attempt)
      : new ExhibitNode(context, exhibit, attempt, true, false, true);
    this.node = el('div', { class: 'jpd-display-cell' }, this._ranks, this._inner.node);
    this.update(exhibit);
  }

  fits(exhibit: IExhibit): boolean {
    return isHistogram(exhibit) === this._inner instanceof HistogramNode;
  }

  update(exhibit: IExhibit): void {
    const { ranks } = exhibit;
    setText(this._ranks, `[${ranges(ranks)}]`);
    this._ranks.style.color = ranks.length === 1 ? `var(${rankVariable(ranks[0])})` : '';
    this._inner.update(exhibit);
  }

  dispose(): void {
    this._inner.dispose();
    this.node.remove();
  }
}
