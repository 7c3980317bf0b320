/** Type another text in the place of one that is shown. */
import { el } from './dom';
import { isComposing } from './keys';

/** Put a field into `place`; `done` gets what was typed, or null when it was given up.
 *
 * `lines`: the text may have several lines. Then Enter begins one, and Ctrl+Enter or a click elsewhere ends. */
export function typeInto(
  place: HTMLElement,
  options: { value: string; label: string; most: number; lines?: boolean },
  signal: AbortSignal,
  done: (text: string | null) => void
): void {
  const { lines = false } = options;
  const shape = {
    class: 'jpd-input jpd-typing',
    maxlength: options.most,
    'aria-label': options.label
  };
  const input = lines ? el('textarea', { ...shape, rows: 5 }) : el('input', shape);
  input.value = options.value;
  let open = true;
  const end = (text: string | null) => {
    if (open) {
      open = false;
      done(text);
    }
  };
  input.addEventListener('blur', () => end(input.value.trim()), { signal });
  const key = (event: KeyboardEvent) => {
    // Keys in here are no shortcuts of whatever is around.
    event.stopPropagation();
    const enter = event.key === 'Enter' && (!lines || event.ctrlKey || event.metaKey);
    if (!isComposing(event) && (enter || event.key === 'Escape')) {
      event.preventDefault();
      end(enter ? input.value.trim() : null);
    }
  };
  (input as HTMLElement).addEventListener('keydown', key, { signal });
  place.replaceChildren(input);
  input.select();
  input.focus();
}
