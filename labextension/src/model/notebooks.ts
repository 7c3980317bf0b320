/** Which cluster each notebook's kernel uses; asked of and told to the kernel, silently. */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { NotebookActions } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

const MODULE = "__import__('jupyter_dist.clusters', fromlist=['used'])";
const LOADED = "'jupyter_dist.clusters' in __import__('sys').modules";
const ROOT = "str(__import__('jupyter_dist.folder', fromlist=['runs_root']).runs_root())";
const LOAD = "get_ipython().extension_manager.load_extension('jupyter_dist')";

/** What is known of a notebook. */
export interface IChoice {
  /** The cluster in use; null: the default. */
  readonly name: string | null;
  /** Set while the kernel has not answered yet. */
  readonly pending: boolean;
  /** The folder where this kernel's runs are kept, once it has loaded jupyter_dist. */
  readonly root: string | null;
}

/** Under this key a notebook's metadata has what belongs to us: `{cluster}`. */
const METADATA = 'jupyter-dist';
const NOTHING: IChoice = { name: null, pending: false, root: null };

/** The kernel said no; `message` is for the user. */
export class KernelRefused extends Error {}

/** Evaluate expressions in a kernel without a trace in the notebook or its namespace.
 *
 * Waits for what the kernel does now. Returns the reprs; rejects with the first error. */
export async function evaluate(
  kernel: Kernel.IKernelConnection,
  expressions: Record<string, string>
): Promise<Record<string, string>> {
  const future = kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false,
    user_expressions: expressions
  });
  const { content } = await future.done;
  if (content.status !== 'ok') {
    throw new KernelRefused('evalue' in content ? content.evalue : content.status);
  }
  const reprs: Record<string, string> = {};
  for (const [name, answer] of Object.entries(content.user_expressions as Answers)) {
    if (answer.status === 'error') {
      throw new KernelRefused(
        answer.ename === 'ModuleNotFoundError'
          ? `${answer.evalue}. Run in a cell: %pip install jupyter-dist`
          : answer.evalue
      );
    }
    reprs[name] = answer.data['text/plain'];
  }
  return reprs;
}

type Answers = Record<
  string,
  | { status: 'ok'; data: Record<string, string> }
  | { status: 'error'; ename: string; evalue: string }
>;

/** A Python literal for a string: JSON's is one. */
export function literal(text: string): string {
  return JSON.stringify(text);
}

/** The string that a repr of `str` or None stands for. */
export function unquote(repr: string | undefined): string | null {
  const match = /^(['"])(.*)\1$/s.exec(repr ?? '');
  return match ? match[2].replace(/\\(.)/g, '$1') : null;
}

export class NotebookChoices implements IDisposable {
  private readonly _choices = new Map<NotebookPanel, IChoice>();
  private readonly _changed = new Signal<this, NotebookPanel | null>(this);
  private readonly _clustersMayHaveChanged = new Signal<this, void>(this);
  private readonly _cleanup: IDisposable[] = [];
  private _disposed = false;

  constructor(private readonly _tracker: INotebookTracker | null) {
    if (!_tracker) {
      return;
    }
    const follow = (_: INotebookTracker, panel: NotebookPanel) => this._follow(panel);
    const front = () => this._changed.emit(_tracker.currentWidget);
    // Who comes back to this page may have chosen in another one of the same kernel.
    const back = () => {
      if (this.front?.sessionContext.session?.kernel?.status === 'idle') {
        void this.ask(this.front);
      }
    };
    const ran = (
      _: unknown,
      done: { notebook: unknown; cell: { model: { sharedModel: unknown } } }
    ) => {
      const panel = _tracker.find(candidate => candidate.content === done.notebook);
      const { source } = done.cell.model.sharedModel as { source?: string };
      if (panel && source && /\bdist(ribute)?\b/.test(source)) {
        void this.ask(panel, /\buse\b/.test(source));
        if (/\bclusters\b/.test(source)) {
          this._clustersMayHaveChanged.emit();
        }
      }
    };
    _tracker.widgetAdded.connect(follow);
    _tracker.currentChanged.connect(front);
    NotebookActions.executed.connect(ran);
    window.addEventListener('focus', back);
    this._cleanup.push(
      new DisposableDelegate(() => {
        _tracker.widgetAdded.disconnect(follow);
        _tracker.currentChanged.disconnect(front);
        NotebookActions.executed.disconnect(ran);
        window.removeEventListener('focus', back);
      })
    );
    _tracker.forEach(panel => this._follow(panel));
  }

  /** Emitted with the notebook whose choice changed, or when another notebook comes to the front. */
  get changed(): ISignal<this, NotebookPanel | null> {
    return this._changed;
  }

  /** Emitted when a cell has run that deals with saved clusters, such as `%dist clusters add`. */
  get clustersMayHaveChanged(): ISignal<this, void> {
    return this._clustersMayHaveChanged;
  }

  /** The notebook in front. */
  get front(): NotebookPanel | null {
    return this._tracker?.currentWidget ?? null;
  }

  of(panel: NotebookPanel | null): IChoice {
    return (panel && this._choices.get(panel)) || NOTHING;
  }

  /** Make a cluster or backend the default of a notebook's kernel; null: none. */
  async use(panel: NotebookPanel, name: string | null): Promise<void> {
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel) {
      throw new KernelRefused('The notebook has no kernel. Select one in its toolbar.');
    }
    const before = this.of(panel);
    this._set(panel, { ...before, name, pending: true });
    try {
      const line = name === null ? 'use --none' : `use ${name}`;
      const said = await evaluate(kernel, {
        load: LOAD,
        use: `get_ipython().run_line_magic('dist', ${literal(line)})`,
        used: `${MODULE}.used()`,
        root: ROOT
      });
      this._set(panel, { name: unquote(said.used), pending: false, root: unquote(said.root) });
      keep(panel, unquote(said.used));
    } catch (error) {
      this._set(panel, { ...before, pending: false });
      throw error;
    }
  }

  /** Learn what a notebook's kernel uses. Loads nothing there, unless the notebook has a cluster of its own that
   * the kernel, which may be a new one, does not know of. `told`: a cell has just said what to use. */
  async ask(panel: NotebookPanel, told = false): Promise<void> {
    const kernel = panel.sessionContext.session?.kernel;
    let choice = NOTHING;
    try {
      const info = await kernel?.info;
      if (kernel && info?.language_info.name === 'python') {
        const said = await evaluate(kernel, {
          used: `${MODULE}.used() if ${LOADED} else None`,
          root: `${ROOT} if ${LOADED} else None`
        });
        choice = { name: unquote(said.used), pending: false, root: unquote(said.root) };
        const kept = keptBy(panel);
        if (choice.name === null && kept !== null && !told) {
          choice = { ...choice, name: kept };
          const given = await evaluate(kernel, {
            use: `${MODULE}.use(${literal(kept)})`,
            root: ROOT
          });
          choice = { ...choice, root: unquote(given.root) };
        } else if (choice.name !== null || told) {
          keep(panel, choice.name);
        }
      }
    } catch {
      // No kernel, or one that dies, or knows no such cluster: the cell that needs it says so.
    }
    if (!panel.isDisposed && panel.sessionContext.session?.kernel === kernel) {
      this._set(panel, choice);
    }
  }

  /** A cluster has another name now: notebooks that use it go on doing so. */
  renamed(from: string, to: string): void {
    this._tracker?.forEach(panel => {
      if (this.of(panel).name === from || keptBy(panel) === from) {
        keep(panel, to);
        void this.ask(panel);
      }
    });
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    this._cleanup.splice(0).forEach(item => item.dispose());
    this._choices.clear();
    Signal.clearData(this);
  }

  private _set(panel: NotebookPanel, choice: IChoice): void {
    const known = this.of(panel);
    this._choices.set(panel, choice);
    if (
      known.name !== choice.name ||
      known.pending !== choice.pending ||
      known.root !== choice.root
    ) {
      this._changed.emit(panel);
    }
  }

  private _follow(panel: NotebookPanel): void {
    const { sessionContext } = panel;
    let restarted = false;
    const kernelChanged = () => void this.ask(panel);
    const statusChanged = (_: unknown, status: Kernel.Status) => {
      if (status === 'restarting' || status === 'autorestarting') {
        restarted = true;
        this._set(panel, { ...NOTHING, name: keptBy(panel), pending: keptBy(panel) !== null });
      } else if (restarted && status === 'idle') {
        restarted = false;
        void this.ask(panel);
      }
    };
    sessionContext.kernelChanged.connect(kernelChanged);
    sessionContext.statusChanged.connect(statusChanged);
    panel.disposed.connect(() => {
      sessionContext.kernelChanged.disconnect(kernelChanged);
      sessionContext.statusChanged.disconnect(statusChanged);
      this._choices.delete(panel);
    });
    void sessionContext.ready.then(() => this.ask(panel));
  }
}

/** The cluster that belongs to a notebook, whatever its kernel knows. */
function keptBy(panel: NotebookPanel): string | null {
  const kept = panel.model?.getMetadata?.(METADATA) as { cluster?: unknown } | undefined;
  return typeof kept?.cluster === 'string' && kept.cluster ? kept.cluster : null;
}

function keep(panel: NotebookPanel, name: string | null): void {
  if (keptBy(panel) === name || !panel.model) {
    return;
  }
  const others = { ...(panel.model.getMetadata(METADATA) as Record<string, string> | undefined) };
  delete others.cluster;
  if (name !== null) {
    panel.model.setMetadata(METADATA, { ...others, cluster: name });
  } else if (Object.keys(others).length) {
    panel.model.setMetadata(METADATA, others);
  } else {
    panel.model.deleteMetadata(METADATA);
  }
}
