/** Light or dark: read from the page's colours, whoever sets them, and followed when they change. */
import { setAttribute } from './dom';

/** Mark `node` as light or dark now and after each change of theme; `changed` is called after those. */
export function followTheme(node: HTMLElement, changed: () => void, signal: AbortSignal): void {
  const apply = () => setAttribute(node, 'data-jpd-theme', isDark(node) ? 'dark' : 'light');
  const update = () => {
    apply();
    changed();
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  // JupyterLab changes the attributes first and the style sheet after.
  const soon = () => {
    update();
    clearTimeout(timer);
    timer = setTimeout(update, 300);
  };
  const observer = new MutationObserver(soon);
  for (const root of [document.documentElement, document.body]) {
    observer.observe(root, {
      attributeFilter: ['class', 'theme', 'data-theme', 'data-jp-theme-name', 'data-jp-theme-light']
    });
  }
  for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)']) {
    window.matchMedia(query).addEventListener('change', soon, { signal });
  }
  signal.addEventListener('abort', () => {
    observer.disconnect();
    clearTimeout(timer);
  });
  apply();
  // Outside of the page there are no colours yet.
  requestAnimationFrame(() => {
    const before = node.dataset.jpdTheme;
    apply();
    if (node.dataset.jpdTheme !== before && !signal.aborted) {
      changed();
    }
  });
}

function isDark(node: HTMLElement): boolean {
  const light = document.body.dataset.jpThemeLight;
  // The system's own colours go before the theme's.
  if (light !== undefined && !window.matchMedia('(forced-colors: active)').matches) {
    return light === 'false';
  }
  // Light text means a dark page.
  return isBright(getComputedStyle(node).color);
}

/** Whether a colour such as `rgb(1 2 3)` is nearer to white than to black. */
export function isBright(colour: string): boolean {
  const [r, g, b] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return b !== undefined && 0.299 * r + 0.587 * g + 0.114 * b > 128;
}

export function cssVariable(node: HTMLElement, name: string): string {
  return getComputedStyle(node).getPropertyValue(name).trim();
}

/** Ranks share this many colours. */
export const RANK_COLOURS = 10;

/** The CSS variable that holds a rank's colour. */
export function rankVariable(rank: number): string {
  return `--jpd-rank-${rank % RANK_COLOURS}`;
}
