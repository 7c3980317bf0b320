// What jsdom lacks and @lumino, JupyterLab or the run view touch; and an empty page for each file.

import { beforeAll, vi } from 'vitest';

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

// jsdom's frames come from the setInterval of the moment in which the first one is asked for. Where that was the fake
// one of a test, no frame came to any later file. These come from the real clock.
const { setTimeout: later, clearTimeout: forget } = globalThis;
globals.requestAnimationFrame = (draw: FrameRequestCallback): number =>
  Number(later(() => draw(performance.now()), 16));
globals.cancelAnimationFrame = (frame: number): void => forget(frame);

// A wait ends with what it waits for. On a busy machine that takes longer than the second that vitest would wait.
const LONG_MS = 120_000;
const waitFor = vi.waitFor;
vi.waitFor = (check, options) => waitFor(check, options ?? { timeout: LONG_MS, interval: 10 });
vi.setConfig({ testTimeout: 2 * LONG_MS });

// All files share one page (vitest.config.mts).
beforeAll(() => {
  document.body.replaceChildren();
  localStorage.clear();
  sessionStorage.clear();
});
