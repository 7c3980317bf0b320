/** Keys pressed in our views are ours: a notebook's `x` must not cut the cell whose chart has the focus. */
import type { IDisposable } from './source';

/** What Lumino looks for on the way from a key's target upwards, in any phase of the event.
 * https://lumino.readthedocs.io/en/latest/api/classes/commands.CommandRegistry.html#processKeydownEvent */
const SUPPRESS = 'data-lm-suppress-shortcuts';

/** Whether a key belongs to an input method, such as Enter that accepts a Chinese or Japanese word.
 *
 * Safari says so of Enter only by this code: https://bugs.webkit.org/show_bug.cgi?id=165004 */
export function isComposing(event: Pick<KeyboardEvent, 'isComposing' | 'keyCode'>): boolean {
  return event.isComposing || event.keyCode === 229;
}

/** Keep keys without Ctrl, Alt or ⌘ from the application's shortcuts while the focus is in a node. Those with
 * one, such as Ctrl+S, are the application's as everywhere. */
export function keepKeys(node: HTMLElement): IDisposable {
  const look = (event: KeyboardEvent) => {
    const { target } = event;
    if (target instanceof Element && node.contains(target)) {
      // At the target itself: a shortcut for `.jp-Notebook :focus` is found there, before any of our nodes.
      target.toggleAttribute(SUPPRESS, !event.ctrlKey && !event.altKey && !event.metaKey);
    }
  };
  // The application listens at the document while the event goes down, and so has to be forestalled.
  window.addEventListener('keydown', look, true);
  return { dispose: () => window.removeEventListener('keydown', look, true) };
}
