/** What is chosen for all charts together: smoothing, and the axis of the values. */
import type { IContext } from './context';
import { el, setText, toggle } from './dom';

/** A slider from 0 (none) to 0.99. */
export function smoothingControl(
  { trans, signal }: IContext,
  value: number,
  changed: (value: number) => void
): HTMLElement {
  const slider = el('input', {
    type: 'range',
    min: 0,
    max: 0.99,
    step: 0.01,
    value,
    'aria-label': trans('Smoothing')
  });
  const shown = el('output', {}, String(value));
  slider.addEventListener(
    'input',
    () => {
      setText(shown, slider.value);
      changed(Number(slider.value));
    },
    { signal }
  );
  return el('label', { class: 'jpd-smoothing' }, el('span', {}, trans('Smoothing')), slider, shown);
}

export function logControl(
  { trans, signal }: IContext,
  on: boolean,
  changed: (on: boolean) => void
): HTMLElement {
  return toggle({ text: trans('log'), title: trans('Logarithmic axis'), on }, changed, signal);
}
