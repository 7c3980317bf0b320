/** Says how old something is that cannot be read as fast as it changes. */
import type { IContext } from './context';
import { el, setText } from './dom';
import { duration } from './format';

/** The age is shown from here on. Younger charts count as current. */
const SAID_AFTER_MS = 2000;
const RENEWED_MS = 500;

export class Staleness {
  readonly node: HTMLElement;
  /** Since when there is something new that nobody has asked for. */
  private _waiting: number | null = null;
  /** The same, of what is being asked for now. */
  private _asked: number | null = null;
  private _timer: ReturnType<typeof setTimeout> | null = null;

  constructor(private readonly _context: IContext) {
    const { trans, signal } = _context;
    this.node = el('span', {
      class: 'jpd-muted jpd-staleness',
      title: trans('Newer points exist, but have not arrived yet'),
      hidden: true
    });
    signal.addEventListener('abort', () => this._timer && clearTimeout(this._timer));
  }

  changed(): void {
    this._waiting ??= performance.now();
    this._show();
  }

  asking(): void {
    this._asked = this._waiting;
    this._waiting = null;
  }

  /** `ok`: what was asked for is shown now. */
  answered(ok: boolean): void {
    if (!ok) {
      this._waiting = this._asked ?? this._waiting;
    }
    this._asked = null;
    this._show();
  }

  private _show(): void {
    const since = this._asked ?? this._waiting;
    const age = since === null ? 0 : performance.now() - since;
    this.node.hidden = age < SAID_AFTER_MS;
    setText(this.node, this.node.hidden ? '' : this._context.trans('%1 old', duration(age / 1000)));
    if (since !== null && !this._timer && !this._context.signal.aborted) {
      this._timer = setTimeout(() => {
        this._timer = null;
        this._show();
      }, RENEWED_MS);
    }
  }
}
