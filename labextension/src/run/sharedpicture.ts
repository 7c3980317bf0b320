/** Pictures as addresses: one that stands at several places of a view is read and decoded once. */
import type { IDisposable, IRunSource } from './source';

interface IShared {
  url: Promise<string>;
  users: number;
}

const shared = new WeakMap<IRunSource, Map<string, IShared>>();

/** A picture while somebody shows it; whoever is the last to dispose of it gives its memory back. */
export class SharedPicture implements IDisposable {
  private readonly _of: Map<string, IShared>;
  private readonly _one: IShared;
  private _disposed = false;

  /** `key`: equal for equal pictures. `read` is asked where nobody shows that picture now. */
  constructor(
    source: IRunSource,
    private readonly _key: string,
    read: () => Promise<Blob>
  ) {
    this._of = shared.get(source) ?? new Map<string, IShared>();
    shared.set(source, this._of);
    this._one = this._of.get(_key) ?? this._begun(read);
    this._one.users++;
  }

  /** Rejected as `read` was; who asks for the picture after that reads it anew. */
  get url(): Promise<string> {
    return this._one.url;
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    if (--this._one.users === 0) {
      this._forget(this._one);
      void this._one.url.then(url => URL.revokeObjectURL(url)).catch(() => undefined);
    }
  }

  private _begun(read: () => Promise<Blob>): IShared {
    const one = { url: read().then(blob => URL.createObjectURL(blob)), users: 0 };
    this._of.set(this._key, one);
    one.url.catch(() => this._forget(one));
    return one;
  }

  private _forget(one: IShared): void {
    if (this._of.get(this._key) === one) {
      this._of.delete(this._key);
    }
  }
}
