/** The view of one run: header, ranks, what went wrong, results, metrics, logs. */
import { About, type IRunActions } from './about';
import { Restarts } from './attempts';
import { framed, type IBundleHost } from './bundles';
import { reason, type IContext } from './context';
import { Displays } from './displays';
import { el, setText } from './dom';
import { failureNode, notice, type ILogLeads } from './failure';
import { Files } from './files';
import { linkFrames, type IPlaces } from './framelinks';
import { JointGrowth } from './jointgrowth';
import { Header, type IHeaderOptions } from './header';
import { keepKeys } from './keys';
import { Logs } from './logs';
import { Media } from './media';
import { Metrics } from './metrics';
import { missing, noticesOf } from './notices';
import { FirstLines } from './firstlines';
import { ProgressRows } from './progress';
import { RanksShown } from './ranksshown';
import { Resources } from './resources';
import { haveContent } from './results';
import {
  ended,
  RunMissing,
  type IDisplay,
  type IDisposable,
  type IRunInfo,
  type IRunSource,
  type RunChange
} from './source';
import { Stacks } from './stacks';
import { StepParts } from './stepparts';
import { StallNotice } from './stall';
import { RankStrip } from './rankstrip';
import { followTheme } from './theme';
import { Tuning } from './trials/tuning';
import { english, type Trans } from './trans';

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 30_000;

export interface IRunViewOptions extends IHeaderOptions {
  source: IRunSource;
  trans?: Trans;
  /** Opens another run, such as a trial of this one; without it trials have no such button. */
  openRun?: (id: string) => void;
  /** Leads to the lines of frames; without it they are no links. */
  places?: IPlaces;
  /** What can be done with the run where there is room to say more of it; without it nothing more is said. */
  actions?: IRunActions;
  /** Draws what ranks show that is no picture; without it HTML is drawn in a frame. */
  bundles?: IBundleHost;
  /** There is no such run here, and why. Returns whether a summary of it is shown below the view. */
  onMissing?: (reason: string) => 'summary' | null;
}

export class RunView implements IDisposable {
  readonly node: HTMLElement;
  private readonly _abort = new AbortController();
  private readonly _context: IContext;
  private readonly _status = el('div', { class: 'jpd-sr', role: 'status', 'aria-live': 'polite' });
  private readonly _header: Header;
  private readonly _about: About | null;
  private readonly _strip: RankStrip;
  private readonly _progress: ProgressRows;
  private readonly _resources: Resources;
  private readonly _steps: StepParts;
  private readonly _notices = el('div', { class: 'jpd-notices' });
  private readonly _failure = el('div', { class: 'jpd-slot' });
  private readonly _displays: Displays;
  private readonly _media: Media;
  private readonly _tuning: Tuning;
  private readonly _files: Files;
  private readonly _metrics: Metrics;
  private readonly _logs: Logs;
  private readonly _stacks: Stacks;
  private readonly _stall: StallNotice;
  private readonly _restarts: Restarts;
  private readonly _leads: ILogLeads;
  private readonly _main: HTMLElement;
  private readonly _loading: HTMLElement;
  private _watching: IDisposable | null = null;
  private _run: IRunInfo | null = null;
  private _online = true;
  private _near = true;
  private readonly _opening: FirstLines;
  /** How often it was told how the run stands. */
  private _told = 0;
  private _gone = false;
  private _ending = '';
  private _again_ms = FIRST_RETRY_MS;
  private _noticesKey = '';

  constructor(private readonly _options: IRunViewOptions) {
    const { source, trans = english } = _options;
    const { signal } = this._abort;
    this.node = el('section', {
      class: 'jpd-run',
      'data-source': source.kind,
      'data-run': source.id,
      'aria-label': trans('Run %1', source.id)
    });
    this._context = {
      source,
      trans,
      signal,
      root: this.node,
      bundles: _options.bundles ?? framed,
      announce: text => setText(this._status, text)
    };
    this._stacks = new Stacks(this._context);
    this._stall = new StallNotice(this._context);
    this._header = new Header(this._context, _options, () => void this._stacks.ask());
    this._about = _options.actions
      ? new About(this._context, _options.actions, this._header.name)
      : null;
    this._resources = new Resources(this._context);
    this._steps = new StepParts(this._context);
    const ranks = new RanksShown();
    this._strip = new RankStrip(this._context, ranks, rank => this._resources.quiet(rank));
    this._restarts = new Restarts(this._context);
    const growth = new JointGrowth(signal);
    this._progress = new ProgressRows(this._context, growth);
    this._tuning = new Tuning(this._context, _options.openRun);
    const told = (displays: readonly IDisplay[]) => (this._logs.displays = displays);
    this._displays = new Displays(this._context, told, ranks);
    this._media = new Media(this._context, ranks);
    this._files = new Files(this._context);
    this._metrics = new Metrics(this._context, ranks);
    this._metrics.onShown = () => {
      this._steps.reserve();
      growth.now();
    };
    this._metrics.onBad = ranks => this._strip.setBad(ranks);
    const reveal = (display: string, rank: number) => this._displays.reveal(display, rank);
    this._logs = new Logs(this._context, ranks, reveal, growth);
    this._opening = new FirstLines(() => {
      this._displays.changed();
      this._media.changed();
      this._setVisible();
    }, signal);
    this._logs.onLines = () => this._opening.lines();
    this._leads = {
      launcher: () => this._run?.launchers?.[0],
      show: name => this._logs.select(name),
      find: (rank, text) => void this._logs.find(rank, text)
    };
    this._main = el(
      'div',
      { class: 'jpd-main', hidden: true },
      this._header.node,
      ...(this._about ? [this._about.node] : []),
      this._strip.node,
      this._notices,
      this._steps.node,
      this._failure,
      this._stacks.node,
      this._restarts.node,
      this._progress.node,
      this._resources.node,
      this._tuning.node,
      this._displays.node,
      this._files.node,
      this._metrics.node,
      this._media.node,
      this._logs.node
    );
    this._loading = el(
      'div',
      { class: 'jpd-loading jpd-muted' },
      trans('Loading run %1 …', source.id)
    );
    this.node.append(this._loading, this._main, this._status);
    linkFrames(
      [this._failure, this._stacks.node, this._restarts.node],
      _options.places,
      () => this._run?.label ?? '',
      error => this._context.announce(reason(error)),
      signal
    );
    followTheme(this.node, () => this._metrics.recolour(), signal);
    this._followVisibility(signal);
    const keys = keepKeys(this.node);
    signal.addEventListener('abort', () => keys.dispose());
    this._watching = source.watch(change => this._onChange(change));
    void this._load();
  }

  dispose(): void {
    this._watching?.dispose();
    this._watching = null;
    this._abort.abort();
    this.node.remove();
  }

  private async _load(): Promise<void> {
    const { source, trans, signal } = this._context;
    const told = this._told;
    try {
      const run = await source.run();
      // What was told meanwhile is newer than an answer that may have been under way for long.
      if (!signal.aborted && told === this._told) {
        this._update(run);
      }
    } catch (error) {
      if (signal.aborted || this._run) {
        return;
      }
      if (error instanceof RunMissing) {
        this._watching?.dispose();
        const shown = this._options.onMissing?.(missing(error, trans));
        const title = shown
          ? trans('Saved with this notebook. Run %1 is not on this server', source.id)
          : trans('Run %1 was not found', source.id);
        const why = el('span', { class: 'jpd-muted' }, missing(error, trans));
        this._loading.replaceChildren(notice(shown ? 'info' : 'warning', title, why));
      } else {
        const title = trans('Run %1 cannot be read', source.id);
        this._loading.replaceChildren(notice('warning', title, reason(error)));
      }
      this._loading.classList.remove('jpd-loading'); // it needs no room for a run
    }
  }

  private _onChange(change: RunChange): void {
    switch (change.kind) {
      case 'run':
        this._told++;
        this._update(change.run);
        break;
      case 'log':
        this._logs.changed(change);
        this._displays.logsGrown();
        break;
      case 'gone':
        this._gone = true;
        this._showNotices();
        break;
      case 'curves':
        this._metrics.changed();
        this._steps.changed();
        break;
      case 'displays':
        if (this._opening.over) {
          this._displays.changed();
          this._media.changed();
        }
        break;
      case 'usage':
        this._resources.changed();
        break;
      case 'connection':
        this._online = change.online;
        this._showNotices();
        if (change.online) {
          this._ending = ''; // what could not be read before can be now
          void this._load();
          this._logs.reload();
          this._displays.changed();
          this._media.changed();
          this._metrics.changed();
          this._steps.changed();
        }
        break;
    }
  }

  private _update(run: IRunInfo): void {
    const before = this._run;
    this._run = run;
    this._gone = false;
    this._loading.hidden = true;
    this._main.hidden = false;
    this.node.dataset.state = run.state;
    this._displays.node.toggleAttribute('data-single', run.world_size === 1);
    this._media.node.toggleAttribute('data-single', run.world_size === 1);
    const widest = `[0-${run.world_size - 1}]`.length;
    this.node.style.setProperty('--jpd-rank-width', `${widest}ch`);
    this._header.update(run);
    this._about?.update(run);
    this._strip.update(run);
    this._restarts.update(run);
    this._stacks.update(run);
    this._progress.update(run);
    this._resources.update(run);
    this._steps.update(run);
    this._tuning.update(run.tuning);
    // It has no ranks, and so none of what ranks write.
    this._strip.node.hidden = this._logs.node.hidden = run.tuning !== undefined;
    this._files.update(run.files ?? []);
    this._logs.ended = ended(run.state);
    this._logs.setLogs(run.world_size, run.launchers ?? []);
    this._logs.attempt = run.attempt;
    this._opening.update(run);
    this._showNotices();
    this._metrics.update(run);
    if (!before || before.attempt !== run.attempt || before.world_size !== run.world_size) {
      this._metrics.changed();
    }
    if (before && before.attempt !== run.attempt) {
      this._logs.reload();
    }
    if (before && !ended(before.state) && ended(run.state)) {
      this._metrics.changed();
      this._context.announce(this._context.trans('The run has ended: %1', run.state));
    }
    void this._showEnding(run);
  }

  /** The failure report and the results: once for each end. */
  private async _showEnding(run: IRunInfo): Promise<void> {
    const { source, signal } = this._context;
    const ending = ended(run.state) ? `${run.state} ${run.attempt}` : '';
    if (ending === this._ending) {
      return;
    }
    this._ending = ending;
    if (!ending) {
      this._failure.replaceChildren();
      this._displays.showResults([], run.world_size);
      return;
    }
    const went = run.state === 'succeeded';
    let failed = false;
    const read = <T>(asked: Promise<T>, without: T) =>
      asked.catch(() => {
        failed = true;
        return without;
      });
    const [card, errors, results] = await Promise.all([
      went ? null : read(source.card(), null),
      went ? [] : read(source.errors(), []),
      read(source.results(), [])
    ]);
    if (signal.aborted || this._ending !== ending) {
      return;
    }
    this._strip.setCause(run.state === 'failed' ? errors : []);
    // Of a run that was stopped the line above says why. The card adds where the ranks were.
    if (card && (run.state !== 'stopped' || card.places.length)) {
      this._failure.replaceChildren(failureNode(card, errors, this._context, this._leads));
    }
    this._displays.showResults(haveContent(results) ? results : [], run.world_size);
    this._showNotices();
    if (failed) {
      void this._readEndingAgain(ending);
    }
  }

  /** Of a run that has ended nothing else would lead to another try. */
  private async _readEndingAgain(ending: string): Promise<void> {
    await new Promise(go => setTimeout(go, this._again_ms));
    this._again_ms = Math.min(LAST_RETRY_MS, 2 * this._again_ms);
    if (this._run && this._ending === ending && !this._context.signal.aborted) {
      this._ending = '';
      void this._showEnding(this._run);
    }
  }

  private _showNotices(): void {
    const run = this._run;
    if (!run) {
      return;
    }
    const stall = this._stall.update(run);
    const key = JSON.stringify([run.state, run.reason, stall, run.notes, this._online, this._gone]);
    if (key === this._noticesKey) {
      return;
    }
    this._noticesKey = key;
    const condition = {
      gone: this._gone,
      online: this._online,
      stall: stall ? this._stall.node : null
    };
    this._notices.replaceChildren(...noticesOf(run, condition, this._context.trans));
  }

  /** What nobody sees costs nothing. */
  private _followVisibility(signal: AbortSignal): void {
    const look = (entries: IntersectionObserverEntry[]) => {
      this._near = entries.at(-1)?.isIntersecting ?? true;
      this._setVisible();
    };
    const observer = new IntersectionObserver(look, { rootMargin: '200px' });
    observer.observe(this.node);
    signal.addEventListener('abort', () => observer.disconnect());
    document.addEventListener('visibilitychange', () => this._setVisible(), { signal });
    this._setVisible();
  }

  private _setVisible(): void {
    const visible = this._near && document.visibilityState !== 'hidden';
    this._logs.visible = visible;
    for (const part of [this._metrics, this._resources, this._steps]) {
      part.visible = visible && this._opening.over;
    }
  }
}
