/** Write a run's end into the notebook's output where its kernel cannot: after a reload of the page in mid-run,
 * or where the cell did not wait, the output would say "running" for ever. */
import type { IDisposable } from '@lumino/disposable';
import type { ISavedOutput } from '../answers/runs';
import { ended, type RunChange } from '../run/source';
import { Timers } from '../run/timers';

export const RUN_MIME = 'application/x-jupyter-dist-run+json';
/** The kernel writes the end itself where it still can. */
const PATIENCE_MS = 3000;

/** An output as JupyterLab's models and renderers have it. */
export interface IOutput {
  readonly data: { readonly [type: string]: unknown };
  setData(options: { data?: { [type: string]: unknown } }): void;
}

export interface ILastOutputsOptions {
  saved: (run: string) => Promise<ISavedOutput>;
  watch: (run: string, listener: (change: RunChange) => void) => { dispose(): void };
  patience_ms?: number;
}

export class LastOutputs implements IDisposable {
  private readonly _outputs = new Map<string, Set<IOutput>>();
  private readonly _watched = new Map<string, { dispose(): void }>();
  private readonly _timers = new Timers();
  private _disposed = false;

  constructor(private readonly _options: ILastOutputsOptions) {}

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    this._timers.clear();
    this._watched.forEach(watch => watch.dispose());
    this._watched.clear();
    this._outputs.clear();
  }

  /** Look after an output, if it says of a run that it goes on. Repeatable. */
  take(output: IOutput): void {
    const run = runOf(output.data[RUN_MIME]);
    if (this._disposed || run === null || !goesOn(output)) {
      return;
    }
    const known = this._outputs.get(run) ?? new Set();
    const fresh = !this._outputs.has(run);
    this._outputs.set(run, known.add(output));
    if (fresh) {
      this._watched.set(
        run,
        this._options.watch(run, change => {
          if (change.kind === 'gone') {
            this._forget(run);
          } else if (
            (change.kind === 'run' && ended(change.run.state)) ||
            (change.kind === 'connection' && change.online)
          ) {
            this._later(run);
          }
        })
      );
      // It may have ended when nobody looked.
      this._later(run);
    }
  }

  private _later(run: string): void {
    this._timers.later(this._options.patience_ms ?? PATIENCE_MS, () => void this._write(run));
  }

  private async _write(run: string): Promise<void> {
    const outputs = [...(this._outputs.get(run) ?? [])];
    if (!outputs.some(output => runOf(output.data[RUN_MIME]) === run && goesOn(output))) {
      this._forget(run);
      return;
    }
    try {
      const { ended, html, text } = await this._options.saved(run);
      if (!ended || this._disposed) {
        return;
      }
      for (const output of this._outputs.get(run) ?? []) {
        if (runOf(output.data[RUN_MIME]) === run && goesOn(output)) {
          const about = { ...(output.data[RUN_MIME] as object), ended: true };
          output.setData({
            data: { ...output.data, [RUN_MIME]: about, 'text/html': html, 'text/plain': text }
          });
        }
      }
      this._forget(run);
    } catch (error) {
      if ((error as { status?: number }).status === 404) {
        this._forget(run); // it is not on this server: what the file has stays
      }
    }
  }

  private _forget(run: string): void {
    this._outputs.delete(run);
    this._watched.get(run)?.dispose();
    this._watched.delete(run);
  }
}

export function runOf(data: unknown): string | null {
  const run = data && typeof data === 'object' ? (data as { run?: unknown }).run : null;
  return typeof run === 'string' && run ? run : null;
}

/** Whether an output says that its run has not ended. */
function goesOn({ data }: IOutput): boolean {
  const { ended } = data[RUN_MIME] as { ended?: unknown };
  if (typeof ended === 'boolean') {
    return !ended;
  }
  // Notebooks that were saved before outputs said so.
  const text = data['text/plain'];
  const shown = Array.isArray(text) ? text.join('') : String(text ?? '');
  return /^(run \S+ )?(pending|running|unwatched)\b/m.test(shown);
}
