/** A view on a page, and what a user finds and does there. */
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { RunView, type IRunViewOptions } from '../../../src/run/view';
import type { FakeSource } from '../fakesource';
import { plots } from './plots';

let view: RunView | null = null;

/** Each test of the file gets a page whose elements have a size, and leaves no view. */
export function withPage(): void {
  beforeEach(() => {
    // jsdom lays nothing out.
    vi.spyOn(HTMLElement.prototype, 'clientHeight', 'get').mockReturnValue(180);
    vi.spyOn(HTMLElement.prototype, 'clientWidth', 'get').mockReturnValue(600);
    Object.assign(plots, { made: 0, alive: 0, data: [] });
  });
  afterEach(() => {
    dispose();
    vi.restoreAllMocks();
  });
}

/** Take the view away. */
export function dispose(): void {
  view?.dispose();
  view = null;
}

/** Make the view, in place of the one before. */
export function open(options: IRunViewOptions): HTMLElement {
  dispose();
  view = new RunView(options);
  document.body.appendChild(view.node);
  return view.node;
}

/** Make the view, and wait until it shows its run. */
export async function show(source: FakeSource): Promise<HTMLElement> {
  const node = open({ source });
  await vi.waitFor(() => expect(node.querySelector<HTMLElement>('.jpd-main')?.hidden).toBe(false));
  return node;
}

export const all = (node: HTMLElement, selector: string) => [
  ...node.querySelectorAll<HTMLElement>(selector)
];
export const text = (node: HTMLElement, selector: string) =>
  node.querySelector(selector)?.textContent ?? null;

export function byName(node: HTMLElement, name: string): HTMLElement {
  const found = all(node, 'button').find(
    button => (button.getAttribute('aria-label') ?? button.textContent) === name
  );
  if (!found) {
    throw new Error(`no button is called ${name}`);
  }
  return found;
}

export function press(target: HTMLElement, key: string, more: KeyboardEventInit = {}): void {
  target.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more })
  );
}
