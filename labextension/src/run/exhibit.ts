/** What some ranks show, drawn: a picture, text, or what the host can draw. */
import { hasScript, renderScripted, type IBundleHost } from './bundles';
import { reason, type IContext } from './context';
import { button, el } from './dom';
import { SharedPicture } from './sharedpicture';
import type { Attempt, IContent, IDisposable, IExhibit } from './source';
import type { Trans } from './trans';

export const PICTURES = ['image/svg+xml', 'image/png', 'image/jpeg', 'image/gif', 'image/webp'];
/** The richest first; what is not listed here, such as a chart, is richer still where the host draws it. */
const ORDER = [
  'text/html',
  'text/markdown',
  'text/latex',
  ...PICTURES,
  'application/json',
  'text/plain'
];
const MOST_TEXT = 100_000;
/** Of more than this, such as a library with its chart, nothing is left without the script but the time it takes
 * to look for that. */
const MOST_WITH_SCRIPT = 500_000;
/** Pictures that are painted where one comes after the other; the others may move, or have no size. */
const PAINTED = ['image/png', 'image/jpeg', 'image/webp'];
const MOST_PAINTED_PIXELS = 16_000_000;
/** Before a picture comes into sight. */
const AHEAD = '600px';

let only = 0;

/** Equal for what looks the same. */
export function contentKey({ contents, metadata }: IExhibit): string {
  return JSON.stringify([
    contents.map(one => one.hash ?? [one.mime, one.text, one.json]),
    metadata
  ]);
}

/** What stands for the ranks whose content has no room. */
export function othersText(ranks: number, trans: Trans): string {
  return ranks === 1
    ? trans('1 more rank shows something else')
    : trans('%1 more ranks show something else', ranks);
}

/** Which of its types is drawn; null where it has none that can be. */
export function chosen({ contents }: IExhibit, host: IBundleHost): IContent | null {
  const rank = ({ mime }: IContent) => ORDER.indexOf(mime);
  const known = contents.filter(
    ({ mime, lost }) =>
      !lost && (mime === 'text/plain' || PICTURES.includes(mime) || host.shows(mime))
  );
  return known.sort((one, other) => rank(one) - rank(other))[0] ?? null;
}

/** One exhibit as an element. It reads and draws when it comes near to what is seen. */
export class ExhibitNode implements IDisposable {
  readonly node = el('div', { class: 'jpd-exhibit' });
  private readonly _abort = new AbortController();
  private _drawn: IDisposable | null = null;
  private _canvas: HTMLCanvasElement | null = null;
  private _key = '';
  private _near = false;

  constructor(
    private readonly _context: IContext,
    private _exhibit: IExhibit,
    private readonly _attempt: Attempt,
    /** Whether it is in sight already: it is drawn without waiting for a frame that says so. */
    atOnce = false,
    /** Where there is little room. */
    private readonly _small = false,
    /** It is one of many that are shown here one after the other. */
    private readonly _oneOfMany = false
  ) {
    if (atOnce) {
      // In a moment it is in the document, which some renderers need.
      queueMicrotask(() => {
        this._near = true;
        void this._draw();
      });
      return;
    }
    const observer = new IntersectionObserver(
      entries => {
        if (entries.some(entry => entry.isIntersecting)) {
          this._near = true;
          void this._draw();
        }
      },
      { rootMargin: AHEAD }
    );
    observer.observe(this.node);
    this._abort.signal.addEventListener('abort', () => observer.disconnect());
  }

  /** It shows something else now, or the same of other ranks. */
  update(exhibit: IExhibit): void {
    this._exhibit = exhibit;
    if (this._near) {
      void this._draw();
    }
  }

  dispose(): void {
    this._abort.abort();
    this._forget();
  }

  private _forget(): void {
    this._drawn?.dispose();
    this._drawn = null;
  }

  private async _draw(): Promise<void> {
    const exhibit = this._exhibit;
    const key = contentKey(exhibit);
    if (key === this._key) {
      return;
    }
    this._key = key;
    const { trans } = this._context;
    const content = chosen(exhibit, this._context.bundles);
    const isOld = () => this._abort.signal.aborted || this._key !== key;
    try {
      if (!content) {
        const lost = exhibit.contents.some(one => one.lost);
        const types = exhibit.contents.map(one => one.mime).join(', ');
        const why = lost
          ? trans('This output was lost.')
          : trans('This view cannot show %1.', types);
        this._put(el('span', { class: 'jpd-muted' }, why));
      } else if (PICTURES.includes(content.mime)) {
        await this._drawPicture(exhibit, content, isOld);
      } else {
        await this._drawText(exhibit, content, isOld);
      }
    } catch (error) {
      if (!isOld()) {
        this._key = ''; // the next change tries again
        this._put(el('span', { class: 'jpd-muted' }, reason(error)));
      }
    }
  }

  /** What was there stays until the new picture can be seen: nothing blinks. */
  private async _drawPicture(
    exhibit: IExhibit,
    content: IContent,
    isOld: () => boolean
  ): Promise<void> {
    if (this._oneOfMany && PAINTED.includes(content.mime) && 'createImageBitmap' in window) {
      const done = await this._paint(exhibit, content, isOld);
      if (done || isOld()) {
        return;
      }
    }
    const { source } = this._context;
    // Of one that has no hash nobody knows whether another one is equal.
    const read = () => this._bytes(exhibit, content);
    const key = content.hash ? `${content.mime} ${content.hash}` : `only ${only++}`;
    const held = new SharedPicture(source, key, read);
    try {
      const picture = await this._decoded(await held.url, exhibit, content);
      if (!isOld()) {
        this._put(picture);
        this._drawn = held;
        return;
      }
    } catch (error) {
      held.dispose();
      throw error;
    }
    held.dispose();
  }

  /** Onto the same canvas as the one before: of what an `<img>` has shown a browser keeps the pixels for long,
   * and a tab in which somebody looks through thousands would grow with each. False for a very large one. */
  private async _paint(
    exhibit: IExhibit,
    content: IContent,
    isOld: () => boolean
  ): Promise<boolean> {
    const blob = await this._bytes(exhibit, content);
    const bitmap = await createImageBitmap(blob).catch(() => null);
    if (!bitmap) {
      throw new Error(this._context.trans('The browser cannot decode this picture.'));
    }
    const { width, height } = bitmap;
    const fits = width * height <= MOST_PAINTED_PIXELS;
    if (fits && !isOld()) {
      this._canvas ??= el('canvas', { role: 'img' });
      Object.assign(this._canvas, { width, height });
      const look = this._look(exhibit, content);
      this._canvas.setAttribute('aria-label', look.alt);
      this._canvas.style.width = look.width === null ? '' : `${look.width}px`;
      this._canvas.getContext('2d')?.drawImage(bitmap, 0, 0);
      if (this._canvas.parentNode !== this.node) {
        this._put(this._canvas);
      }
    }
    bitmap.close();
    return fits;
  }

  /** What a rank has said of a picture: its size, where it is not the picture's own, and its text. */
  private _look(
    { contents, metadata }: IExhibit,
    { mime }: IContent
  ): { alt: string; width: number | null; height: number | null } {
    const size = (metadata[mime] ?? {}) as { width?: unknown; height?: unknown };
    const plain = contents.find(one => one.mime === 'text/plain')?.text;
    return {
      alt: plain ?? this._context.trans('A picture without a description'),
      width: typeof size.width === 'number' ? size.width : null,
      height: typeof size.height === 'number' ? size.height : null
    };
  }

  private async _decoded(
    url: string,
    exhibit: IExhibit,
    content: IContent
  ): Promise<HTMLImageElement> {
    const picture = el('img', { ...this._look(exhibit, content), src: url });
    try {
      await picture.decode?.();
    } catch {
      throw new Error(this._context.trans('The browser cannot decode this picture.'));
    }
    return picture;
  }

  private async _drawText(
    exhibit: IExhibit,
    content: IContent,
    isOld: () => boolean
  ): Promise<void> {
    const { mime } = content;
    const isJson = mime === 'application/json' || /[+.]json$/.test(mime);
    let data: unknown = content.text ?? content.json;
    if (content.hash) {
      const text = await (await this._bytes(exhibit, content)).text();
      data = isJson ? JSON.parse(text) : text;
    }
    if (isOld()) {
      return;
    }
    if (mime === 'text/plain') {
      this._put(el('pre', { class: 'jpd-pre' }, String(data).slice(0, MOST_TEXT)));
      return;
    }
    const script = mime === 'text/html' && hasScript(String(data)) ? String(data) : null;
    if (script && this._small) {
      const what = this._context.trans('This output runs a script. Click to enlarge it.');
      this._put(el('span', { class: 'jpd-muted' }, what));
      return;
    }
    if (script && script.length > MOST_WITH_SCRIPT) {
      this._put(el('div', { class: 'jpd-bundle' }));
      this._offerScript(script);
      return;
    }
    const place = el('div', { class: 'jpd-bundle' });
    this.node.appendChild(place); // a host may measure it
    const drawn = await this._context.bundles.render(place, mime, data, exhibit.metadata[mime]);
    if (isOld()) {
      drawn.dispose();
      place.remove();
      return;
    }
    this._put(place);
    this._drawn = drawn;
    if (script) {
      this._offerScript(script);
    }
  }

  /** It is run when somebody asks for that, and where it can do nothing but draw. */
  private _offerScript(html: string): void {
    const label = this._context.trans('Run the script in an isolated frame');
    const run = () => {
      this._drawn?.dispose();
      const place = el('div', { class: 'jpd-bundle' });
      this.node.replaceChildren(place);
      const lost = (address: string) =>
        this._context.trans('The script could not be loaded: %1', address);
      this._drawn = renderScripted(place, html, this._abort.signal, lost);
    };
    this.node.appendChild(button({ label, text: label }, run, this._abort.signal));
  }

  private async _bytes(exhibit: IExhibit, content: IContent): Promise<Blob> {
    if (content.base64) {
      const bytes = Uint8Array.from(atob(content.base64), char => char.charCodeAt(0));
      return new Blob([bytes], { type: content.mime });
    }
    if (!content.hash) {
      return new Blob([content.text ?? JSON.stringify(content.json)], { type: content.mime });
    }
    const blob = await this._context.source.content(exhibit.ranks[0], content, this._attempt);
    return blob.type === content.mime ? blob : new Blob([blob], { type: content.mime });
  }

  private _put(node: HTMLElement): void {
    this._forget();
    this.node.replaceChildren(node);
  }
}
