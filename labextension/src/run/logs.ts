/** The logs: all ranks by time, one rank or a launcher, with search, copy and download. */
import { FollowedLog } from './followedlog';
import { AttemptChoice } from './attempts';
import { reason, type IContext } from './context';
import { button, el, setText } from './dom';
import { LogList } from './loglist';
import { copyLines } from './logcopy';
import { fitLog, type IFitted } from './logfit';
import { LogSearch } from './logsearch';
import { LogTabs } from './logtabs';
import { emptyText, logLabel, newsText } from './logtexts';
import { modeToggles, rememberedModes } from './logmodes';
import { JointGrowth } from './jointgrowth';
import { inlaysOf } from './inlays';
import { LogPages, pageOfLines } from './logpages';
import type { RanksShown } from './ranksshown';
import {
  type Attempt,
  type IDisplay,
  type ILogPage,
  type ILogTail,
  type LogOf,
  type RunChange
} from './source';

const TAIL = 200;
/** While somebody reads along: more than fit into the box. */
const NEWEST = 100;
let views = 0;

/** One log that is shown: its lines, its list, and what it counts as seen. */
interface IShown extends IFitted {
  of: LogOf;
  attempt: Attempt;
  /** The lines that a search has left, by their numbers; null: all. */
  only: readonly number[] | null;
  seen: number;
  abort: AbortController;
}

export class Logs {
  readonly node: HTMLElement;
  private readonly _tabs: LogTabs;
  private readonly _attempts: AttemptChoice;
  private readonly _panel: HTMLElement;
  private readonly _body = el('div', { class: 'jpd-log-body' });
  private readonly _message = el('div', { class: 'jpd-log-message jpd-muted', hidden: true });
  private readonly _news: HTMLButtonElement;
  private readonly _search: LogSearch;
  private readonly _copy: HTMLButtonElement;
  private readonly _prefix = `jpd-logs-${++views}`;
  private readonly _modes = rememberedModes();
  private _known = '';
  private _totals: Extract<RunChange, { kind: 'log' }> | null = null;
  private _shown: IShown | null = null;
  private _visible = true;
  private _ended = false;
  private _displays: readonly IDisplay[] = [];
  private readonly _followed: FollowedLog;
  /** There was news while nobody could see it. */
  private _missed = false;
  /** Told when there are lines. */
  onLines: (() => void) | null = null;

  constructor(
    private readonly _context: IContext,
    private readonly _ranks: RanksShown,
    private readonly _enlarge: (display: string, rank: number) => void,
    private readonly _growth = new JointGrowth(_context.signal)
  ) {
    const { trans, signal } = _context;
    const toEnd = () => {
      this._shown?.list.toEnd();
      this._shown?.list.node.focus();
    };
    this._news = button({ label: '', text: ' ', icon: 'down', class: 'jpd-news' }, toEnd, signal);
    this._news.hidden = true;
    this._followed = new FollowedLog(_context.source);
    this._search = new LogSearch(
      _context,
      () => this._shown,
      (hits, grown) => this._filter(hits, grown)
    );
    this._copy = button(
      { label: trans('Copy the selected lines'), icon: 'copy' },
      () => void this._copyLines(),
      signal
    );
    this._copy.title = trans(
      'Copy the selected lines: drag over their numbers, or press Shift and the arrow keys'
    );
    this._panel = el(
      'div',
      { class: 'jpd-log-panel', id: `${this._prefix}-panel` },
      this._body,
      this._news,
      this._message
    );
    this._tabs = new LogTabs(_context, this._panel, of => this.select(of, true));
    _ranks.onChange(() => this._follow());
    this._attempts = new AttemptChoice(_context, () => this._showAgain());
    this.node = el(
      'section',
      { class: 'jpd-logs', 'aria-label': trans('Logs') },
      el('div', { class: 'jpd-bar-row' }, this._tabs.node, this._attempts.node, this._tools()),
      this._panel
    );
    this.node.addEventListener('copy', event => this._onCopy(event), { signal });
    this.node.addEventListener(
      'keydown',
      event => {
        if ((event.ctrlKey || event.metaKey) && event.key === 'f') {
          event.preventDefault();
          event.stopPropagation();
          this._search.focus();
        }
      },
      { signal }
    );
    signal.addEventListener('abort', () => {
      this._close();
      this._followLog();
    });
    this._followLog();
  }

  /** Known now: which logs there are. The first call shows one; later ones leave what is shown. */
  setLogs(worldSize: number, launchers: readonly string[]): void {
    const known = JSON.stringify([worldSize, launchers]);
    if (known === this._known) {
      return;
    }
    this._known = known;
    const logs = this._tabs.show(worldSize, launchers);
    const shown = this._shown;
    if (!shown || !logs.includes(shown.of)) {
      this.select(logs[0]);
    } else if (shown.of === null) {
      this.reload(); // with a rank that has joined lines have other numbers
    }
  }

  /** The run is at this attempt now. An earlier one that is shown stays. */
  set attempt(attempt: number) {
    this._attempts.update(attempt);
  }

  private _showAgain(): void {
    const of = this._shown?.of ?? null;
    this._close();
    this.select(of);
  }

  /** Show the log of the only rank that is shown, or that of all. */
  private _follow(): void {
    const { single } = this._ranks;
    if (single !== null || typeof this._shown?.of === 'number') {
      this.select(single ?? this._tabs.first);
    }
  }

  /** Show one rank's log, a launcher's, or that of all (null). `all`: by the whole view. */
  select(of: LogOf, all = false): void {
    if (all && typeof of !== 'string' && of !== this._ranks.single) {
      this._ranks.select(of === null ? null : [of]);
    }
    if (this._shown && this._shown.of === of) {
      return;
    }
    this._close();
    const abort = new AbortController();
    const context = { ...this._context, signal: abort.signal };
    const { chosen } = this._attempts;
    const pages = new LogPages(
      (start, lines) => this._read(shown, start, lines),
      () => this._update()
    );
    const list = new LogList(
      context,
      pages,
      of === null,
      logLabel(of, context),
      this._modes,
      () => this._update(),
      this._enlarge
    );
    const only = this._search.filters ? [] : null;
    const shown: IShown = { of, attempt: chosen, only, pages, list, seen: 0, begun: false, abort };
    this._shown = shown;
    this._body.replaceChildren(list.node);
    this._tabs.mark(of);
    this._inlay();
    this._search.begin();
    this._update();
    if (!only) {
      pages.begin(TAIL, this._followed.begins);
    }
  }

  /** Show a rank's log of the current attempt at its last line with a text. */
  async find(rank: number, text: string): Promise<void> {
    this._attempts.reset();
    this._close();
    this.select(rank, true);
    this.node.scrollIntoView({ block: 'nearest' });
    await this._search.findLast(text);
  }

  private _read({ of, attempt, only }: IShown, start: number, count: number): Promise<ILogPage> {
    const { source } = this._context;
    return only
      ? pageOfLines(only, start, count, numbers => source.logLines(of, numbers, attempt))
      : source.logPage(of, start, count, attempt);
  }

  private _filter(only: readonly number[] | null, grown: boolean): void {
    const shown = this._shown;
    if (!shown || (!only && !shown.only)) {
      return;
    }
    const known = shown.only;
    shown.only = only;
    const more = grown && known?.[0] === only?.[0]; // else the rows are other lines now
    if (only && known && more && !shown.list.following) {
      shown.pages.grown(only.length);
      return;
    }
    if (!more) {
      shown.begun &&= grown; // what the user has asked for waits for nothing
      shown.pages.clear();
      this._inlay();
    }
    void shown.pages.tail(TAIL);
  }

  /** What the ranks show now stands between the lines of the run's last attempt. */
  set displays(displays: readonly IDisplay[]) {
    this._displays = displays;
    this._inlay();
  }

  private _inlay(): void {
    const shown = this._shown;
    if (shown) {
      const displays = shown.attempt === null && !shown.only ? this._displays : [];
      shown.list.showInlays(inlaysOf(displays, shown.of, this._context.bundles));
    }
  }

  /** The log has grown. */
  changed(change: Extract<RunChange, { kind: 'log' }>): void {
    this._totals = change;
    this._refresh(change.tails);
  }

  /** Read anew: after a lost connection, or another attempt. */
  reload(): void {
    const shown = this._shown;
    if (shown?.only) {
      this._search.begin();
    } else if (shown) {
      shown.begun = false;
      shown.pages.clear();
      void shown.pages.tail(TAIL);
    }
  }

  /** Whether the run has ended, and no line will come any more. */
  set ended(ended: boolean) {
    if (ended !== this._ended) {
      this._ended = ended;
      this._search.grown(); // by the last lines
      if (ended && this._shown && !this._shown.pages.complete) {
        void this._shown.pages.tail(NEWEST); // the last lines
      }
      this._update();
    }
  }

  set visible(visible: boolean) {
    this._visible = visible;
    this._followLog();
    if (visible && this._missed) {
      this._refresh();
    }
    if (visible) {
      this._shown?.list.draw();
    }
  }

  /** `came`: what of some logs has come along with the news. */
  private _refresh(came: ILogTail[] = []): void {
    const shown = this._shown;
    this._missed = !this._visible;
    if (!shown || !this._visible || !this._totals || this._attempts.chosen !== null) {
      return;
    }
    this._search.grown();
    if (shown.only) {
      return;
    }
    const { of } = shown;
    const { all, ranks, launchers } = this._totals;
    const total = of === null ? all : ((typeof of === 'string' ? launchers : ranks)?.[of] ?? 0);
    if (shown.list.following) {
      const page = this._followed.pageOf(of, came);
      if (page) {
        shown.pages.take(page);
      } else {
        // Too much text does not come unasked.
        shown.pages.begin(NEWEST, this._followed.begins);
      }
    } else {
      shown.pages.grown(Math.max(total, shown.pages.total));
    }
  }

  private _followLog(): void {
    const shown = this._shown;
    const over = this._ended || this._context.signal.aborted;
    const live = !over && this._visible && this._attempts.chosen === null;
    // Before it is known which logs there are: that of all ranks, whose first lines come with the first news.
    this._followed.follow(
      live && (shown?.list.following ?? true) ? (shown ? shown.of : null) : undefined
    );
  }

  private _close(): void {
    const shown = this._shown;
    this._shown = null;
    shown?.abort.abort();
    shown?.pages.close();
    shown?.list.node.remove();
  }

  private _update(): void {
    this._followLog();
    const shown = this._shown;
    if (!shown) {
      return;
    }
    const { trans } = this._context;
    const { pages, list } = shown;
    const over = this._ended || this._attempts.chosen !== null;
    if (list.following) {
      shown.seen = pages.total;
    }
    this._news.hidden = list.following || pages.total === 0;
    setText(this._news.lastChild as Text, newsText(pages.total - shown.seen, trans));
    // Until the last lines have come nobody knows whether there are any.
    const unknown = (over || shown.only !== null) && !pages.complete;
    this._message.hidden = (pages.rows > 0 || unknown) && !pages.error;
    setText(this._message, emptyText(pages.error, shown.only !== null, over, trans));
    fitLog(shown, this._growth);
    if (pages.rows) {
      this.onLines?.();
    }
    this._copy.disabled = !list.selection;
    list.draw();
  }

  private _tools(): HTMLElement {
    const { trans, signal } = this._context;
    const label = trans('Download the whole log');
    return el(
      'div',
      { class: 'jpd-controls' },
      ...this._search.nodes,
      ...modeToggles(this._modes, () => this._shown?.list.showModes(), this._context),
      this._copy,
      button({ label, icon: 'download' }, () => this._download(), signal)
    );
  }

  private _onCopy(event: ClipboardEvent): void {
    const native = document.getSelection();
    if (this._shown?.list.selection && (!native || native.isCollapsed)) {
      event.preventDefault();
      event.stopPropagation();
      void this._copyLines();
    }
  }

  private async _copyLines(): Promise<void> {
    const { pages, list, of } = this._shown ?? {};
    if (pages && list?.selection) {
      await copyLines(pages, list.selection, of === null, this._context);
    }
  }

  private _download(): void {
    const { source, trans, announce } = this._context;
    source
      .download(this._shown?.of ?? null, this._attempts.chosen)
      .catch(error => announce(trans('The log cannot be downloaded: %1', reason(error))));
  }
}
