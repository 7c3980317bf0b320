/** Type another text in the place of one that is shown. */
import { el } from './dom';

/** Put a field into `place`; `done` gets what was typed, or null when it was given up. */
export function typeInto(
  place: HTMLElement,
  options: { value: string; label: string; most: number },
  signal: AbortSignal,
  done: (text: string | null) => void
): void {
  const input = el('input', {
    class: 'jpd-input jpd-typing',
    value: options.value,
    maxlength: options.most,
    'aria-label': options.label
  });
  let open = true;
  const end = (text: string | null) => {
    if (open) {
      open = false;
      done(text);
    }
  };
  input.addEventListener('blur', () => end(input.value.trim()), { signal });
  input.addEventListener(
    'keydown',
    event => {
      // Keys in here are no shortcuts of whatever is around.
      event.stopPropagation();
      if (event.key === 'Enter' || event.key === 'Escape') {
        event.preventDefault();
        end(event.key === 'Enter' ? input.value.trim() : null);
      }
    },
    { signal }
  );
  place.replaceChildren(input);
  input.select();
  input.focus();
}
