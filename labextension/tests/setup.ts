// What jsdom lacks and @lumino, JupyterLab or the run view touch; and an empty page for each file.

import { beforeAll } from 'vitest';

class Observer extends Event {
  constructor() {
    super('observer');
  }
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

const globals = globalThis as unknown as Record<string, unknown>;
globals.DragEvent ??= Observer;
globals.ResizeObserver ??= Observer;
globals.IntersectionObserver ??= Observer;
globals.Path2D ??= class {};
Element.prototype.scrollIntoView ??= () => undefined;

window.matchMedia ??= (media: string): MediaQueryList =>
  ({
    media,
    matches: false,
    onchange: null,
    addListener() {},
    removeListener() {},
    addEventListener() {},
    removeEventListener() {},
    dispatchEvent: () => false
  }) as MediaQueryList;

// All files share one page (vitest.config.mts).
beforeAll(() => {
  document.body.replaceChildren();
  localStorage.clear();
  sessionStorage.clear();
});
