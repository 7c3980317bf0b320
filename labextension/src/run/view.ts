/** The view of one run: header, ranks, what went wrong, results, metrics, logs. */
import { Restarts } from './attempts';
import { reason, type IContext } from './context';
import { button, el, setText } from './dom';
import { failureNode, notice, Stacks, unexplainedNode } from './failure';
import { Files } from './files';
import { capital, duration } from './format';
import { Header } from './header';
import { Logs } from './logs';
import { Metrics } from './metrics';
import { ProgressRows } from './progress';
import { resultsNode } from './results';
import {
  ended,
  RunMissing,
  type IDisposable,
  type IRunInfo,
  type IRunSource,
  type RunChange
} from './source';
import { Strip } from './strip';
import { followTheme } from './theme';
import { english, type Trans } from './trans';

export interface IRunViewOptions {
  source: IRunSource;
  trans?: Trans;
  /** Opens the run where there is more room; without it there is no such button. */
  openElsewhere?: { label: string; open: () => void };
  /** There is no such run here, and why. */
  onMissing?: (reason: string) => void;
}

export class RunView implements IDisposable {
  readonly node: HTMLElement;
  private readonly _abort = new AbortController();
  private readonly _context: IContext;
  private readonly _status = el('div', { class: 'jpd-sr', role: 'status', 'aria-live': 'polite' });
  private readonly _header: Header;
  private readonly _strip: Strip;
  private readonly _progress: ProgressRows;
  private readonly _notices = el('div', { class: 'jpd-notices' });
  private readonly _failure = el('div', { class: 'jpd-slot' });
  private readonly _results = el('div', { class: 'jpd-slot' });
  private readonly _files: Files;
  private readonly _metrics: Metrics;
  private readonly _logs: Logs;
  private readonly _stacks: Stacks;
  private readonly _restarts: Restarts;
  private readonly _main: HTMLElement;
  private readonly _loading: HTMLElement;
  private _watching: IDisposable | null = null;
  private _run: IRunInfo | null = null;
  private _online = true;
  private _gone = false;
  private _ending = '';
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
      announce: text => setText(this._status, text)
    };
    this._stacks = new Stacks(this._context);
    this._header = new Header(this._context, _options.openElsewhere, () => void this._stacks.ask());
    this._strip = new Strip(this._context, rank => this._logs.select(rank));
    this._restarts = new Restarts(this._context);
    this._progress = new ProgressRows(this._context);
    this._files = new Files(this._context);
    this._metrics = new Metrics(this._context);
    this._logs = new Logs(this._context, of =>
      this._strip.select(typeof of === 'number' ? of : null)
    );
    this._main = el(
      'div',
      { class: 'jpd-main', hidden: true },
      this._header.node,
      this._strip.node,
      this._notices,
      this._stacks.node,
      this._failure,
      this._restarts.node,
      this._progress.node,
      this._results,
      this._files.node,
      this._metrics.node,
      this._logs.node
    );
    this._loading = el(
      'div',
      { class: 'jpd-loading jpd-muted' },
      trans('Loading run %1 …', source.id)
    );
    this.node.append(this._loading, this._main, this._status);
    followTheme(this.node, () => this._metrics.recolour(), signal);
    this._followVisibility(signal);
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
    try {
      const run = await source.run();
      if (!signal.aborted) {
        this._update(run);
      }
    } catch (error) {
      if (signal.aborted || this._run) {
        return;
      }
      if (error instanceof RunMissing) {
        this._watching?.dispose();
        this._options.onMissing?.(missing(error, trans));
        this._loading.replaceChildren(
          notice('warning', trans('Run %1 is not here', source.id), missing(error, trans))
        );
      } else {
        this._loading.replaceChildren(
          notice('warning', trans('Run %1 cannot be read', source.id), reason(error))
        );
      }
    }
  }

  private _onChange(change: RunChange): void {
    switch (change.kind) {
      case 'run':
        this._update(change.run);
        break;
      case 'log':
        this._logs.changed(change);
        break;
      case 'gone':
        this._gone = true;
        this._showNotices();
        break;
      case 'curves':
        this._metrics.changed(this._run?.world_size ?? 0);
        break;
      case 'connection':
        this._online = change.online;
        this._showNotices();
        if (change.online) {
          this._ending = ''; // what could not be read before can be now
          void this._load();
          this._logs.reload();
          this._metrics.changed(this._run?.world_size ?? 0);
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
    const widest = `[0-${run.world_size - 1}]`.length;
    this.node.style.setProperty('--jpd-rank-width', `${widest}ch`);
    this._header.update(run);
    this._strip.update(run);
    this._restarts.update(run);
    this._progress.update(run);
    this._files.update(run.files ?? []);
    this._logs.setLogs(run.world_size, run.launchers ?? []);
    this._logs.attempt = run.attempt;
    this._logs.ended = ended(run.state);
    this._showNotices();
    if (!before || before.attempt !== run.attempt || before.world_size !== run.world_size) {
      this._metrics.changed(run.world_size);
    }
    if (before && before.attempt !== run.attempt) {
      this._logs.reload();
    }
    if (before && !ended(before.state) && ended(run.state)) {
      this._metrics.changed(run.world_size);
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
      this._results.replaceChildren();
      return;
    }
    const [errors, results] = await Promise.all([
      run.state === 'succeeded' ? [] : source.errors().catch(() => []),
      source.results().catch(() => [])
    ]);
    if (signal.aborted || this._ending !== ending) {
      return;
    }
    if (errors.some(error => !error.collateral) && run.state !== 'stopped') {
      this._failure.replaceChildren(failureNode(errors, run, this._context));
    } else if (run.state === 'failed') {
      this._failure.replaceChildren(
        unexplainedNode(errors, run, this._context, launcher => this._logs.select(launcher))
      );
    }
    if (results.length) {
      this._results.replaceChildren(resultsNode(results, run.world_size, this._context));
    }
    this._showNotices();
  }

  private _showNotices(): void {
    const run = this._run;
    const { trans } = this._context;
    if (!run) {
      return;
    }
    const stall = ended(run.state) ? null : run.stall;
    const key = JSON.stringify([run.state, run.reason, stall, run.notes, this._online, this._gone]);
    if (key === this._noticesKey) {
      return;
    }
    this._noticesKey = key;
    const nodes: HTMLElement[] = [];
    if (this._gone) {
      nodes.push(
        notice(
          'warning',
          trans('This run was removed'),
          trans('What was read of it before is still shown.')
        )
      );
    }
    if (!this._online) {
      nodes.push(
        notice(
          'info',
          trans('No connection'),
          trans('The run goes on; what it does is shown again soon.')
        )
      );
    }
    if (stall) {
      const quiet = duration(Math.max(60, stall.noticed - stall.since));
      nodes.push(
        notice(
          'warning',
          trans('No rank has printed or logged for %1', quiet),
          trans('They may be waiting for each other.'),
          this._stacksButton()
        )
      );
    }
    if (run.state === 'unwatched') {
      nodes.push(
        notice(
          'warning',
          trans('Nobody watches this run'),
          capital(run.reason ?? trans('its supervisor is gone')),
          trans(
            'Its ranks may go on, and what they do is not shown here. Stop ends them; %1 takes the run on.',
            `%dist attach ${run.id}`
          )
        )
      );
    }
    if (run.state === 'lost') {
      nodes.push(
        notice(
          'warning',
          trans('The run is lost'),
          capital(run.reason ?? trans('its supervisor is gone')),
          trans('What its ranks wrote until then is shown below. Files: %1', run.path)
        )
      );
    } else if (run.reason && ended(run.state) && run.state !== 'failed') {
      nodes.push(notice('info', capital(run.reason)));
    }
    for (const note of run.notes.slice(0, 5)) {
      nodes.push(notice('info', note));
    }
    this._notices.replaceChildren(...nodes);
    if (stall) {
      this._context.announce(trans('No rank has printed or logged for a while'));
    }
  }

  private _stacksButton(): HTMLElement {
    const { trans, signal } = this._context;
    const text = trans('Show stacks');
    return button({ label: text, text }, () => void this._stacks.ask(), signal);
  }

  /** What nobody sees costs nothing. */
  private _followVisibility(signal: AbortSignal): void {
    let near = true;
    const apply = () => {
      const visible = near && document.visibilityState !== 'hidden';
      this._metrics.visible = visible;
      this._logs.visible = visible;
    };
    const observer = new IntersectionObserver(
      entries => {
        near = entries[entries.length - 1]?.isIntersecting ?? true;
        apply();
      },
      { rootMargin: '200px' }
    );
    observer.observe(this.node);
    signal.addEventListener('abort', () => observer.disconnect());
    document.addEventListener('visibilitychange', apply, { signal });
  }
}

function missing(error: RunMissing, trans: Trans): string {
  const where = error.root
    ? trans('It was looked for in %1.', error.root)
    : trans('It was looked for among the runs of this server.');
  const why = trans(
    'It may have been removed, or belongs to a kernel with another data directory or on another machine.'
  );
  return `${where} ${why}`;
}
