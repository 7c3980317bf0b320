/** How content of a rank is drawn that is no picture and no plain text: by the host, or in a frame. */
import { el } from './dom';
import type { IDisposable } from './source';

/** Draws content that is not to be trusted. */
export interface IBundleHost {
  /** Whether it draws that type, safely. */
  shows(mime: string): boolean;
  /** Draw into a place that is in the document. */
  render(place: HTMLElement, mime: string, data: unknown, metadata: unknown): Promise<IDisposable>;
}

const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:";
const MOST_PX = 4000;

/** HTML in a frame in which no script runs and that fetches nothing; it is as high as what is in it. */
export const framed: IBundleHost = {
  shows: mime => mime === 'text/html',
  render: (place, _mime, data) =>
    new Promise(resolve => {
      const look = getComputedStyle(place);
      const style =
        `body{margin:0;color:${look.color};font:${look.fontSize} ${look.fontFamily}}` +
        'table{border-collapse:collapse;border:0}td,th{padding:2px 8px;text-align:right;border:0}' +
        'tbody tr:nth-child(odd){background:#8882}';
      // Of the same origin, so that it can be measured; without scripts nothing in it can use that.
      const frame = el('iframe', {
        class: 'jpd-html-frame',
        sandbox: 'allow-same-origin',
        referrerpolicy: 'no-referrer',
        scrolling: 'no',
        srcdoc:
          `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" ` +
          `content="${POLICY}"><style>${style.replace(/</g, '')}</style>${String(data)}`
      });
      frame.addEventListener('load', () => {
        const inside = frame.contentDocument?.documentElement;
        const { scrollHeight = 0, scrollWidth = 0 } = inside ?? {};
        frame.style.height = `${Math.min(MOST_PX, scrollHeight)}px`;
        if (scrollWidth > frame.clientWidth) {
          frame.style.minWidth = `${Math.min(MOST_PX, scrollWidth)}px`;
        }
        resolve({ dispose: () => frame.remove() });
      });
      place.appendChild(frame);
    })
};

const SCRIPTS = "'unsafe-inline' 'unsafe-eval' https://cdn.plot.ly https://cdn.jsdelivr.net";
const SCRIPT_POLICY =
  `default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; font-src data:; ` +
  `script-src ${SCRIPTS}; worker-src blob:`;
const FIRST_PX = 480;
/** Says which of its scripts does not come: a page without it may be blank. Before them all. */
const SAYS_LOST =
  '<script>addEventListener("error", event => { const src = event.target && event.target.src; ' +
  'if (src) parent.postMessage({ jpdLost: String(src) }, "*"); }, true)</' +
  'script>';
/** Says how high and wide its page is. */
const SAYS_SIZE =
  '<script>new ResizeObserver(() => parent.postMessage({ jpdHeight: document.body.scrollHeight, ' +
  'jpdWidth: document.documentElement.scrollWidth }, "*")).observe(document.body)</' +
  'script>';
const MOST_ADDRESS = 200;

/** Whether there is a script in it, without which it may show nothing. */
export function hasScript(html: string): boolean {
  return /<script[\s>]/i.test(html);
}

/** HTML in a frame of its own origin, in which its scripts run: they reach neither this page nor any server but
 * those that libraries of charts are loaded from. `lost` says that what is at an address did not come. */
export function renderScripted(
  place: HTMLElement,
  html: string,
  signal: AbortSignal,
  lost: (address: string) => string
): IDisposable {
  const frame = el('iframe', {
    class: 'jpd-script-frame',
    sandbox: 'allow-scripts',
    referrerpolicy: 'no-referrer',
    srcdoc:
      `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" ` +
      `content="${SCRIPT_POLICY}"><style>body{margin:0;background:#fff;display:flow-root}</style>${SAYS_LOST}${html}${SAYS_SIZE}`
  });
  const said = el('div', { class: 'jpd-muted', role: 'status' });
  frame.style.height = `${FIRST_PX}px`;
  window.addEventListener(
    'message',
    event => {
      if (event.source !== frame.contentWindow) {
        return;
      }
      const told = (event.data ?? {}) as { [name: string]: unknown };
      const { jpdHeight: height, jpdWidth: width, jpdLost: address } = told;
      if (typeof height === 'number' && height > 0) {
        frame.style.height = `${Math.min(MOST_PX, Math.ceil(height))}px`;
      }
      if (typeof width === 'number' && width > frame.clientWidth) {
        frame.style.minWidth = `${Math.min(MOST_PX, Math.ceil(width))}px`;
      }
      if (typeof address === 'string') {
        said.textContent = lost(address.slice(0, MOST_ADDRESS));
      }
    },
    { signal }
  );
  place.replaceChildren(said, frame);
  return { dispose: () => place.replaceChildren() };
}
