/** How logs are shown: with the time of each line, and with long lines wrapped. Remembered by the browser. */
import type { IContext } from './context';
import { el } from './dom';

export interface ILogModes {
  times: boolean;
  wrap: boolean;
}

const KEY = 'jupyter-dist:log';

/** As they were chosen last. */
export function rememberedModes(): ILogModes {
  let kept: Partial<ILogModes> = {};
  try {
    kept = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<ILogModes>;
  } catch {
    // A page that may keep nothing, or what somebody else has kept there.
  }
  return { times: kept.times === true, wrap: kept.wrap === true };
}

/** A button for each. */
export function modeToggles(
  modes: ILogModes,
  changed: () => void,
  { trans, signal }: IContext
): HTMLElement[] {
  const toggle = (name: keyof ILogModes, text: string, title: string) => {
    const node = el(
      'button',
      { type: 'button', class: 'jpd-toggle', 'aria-pressed': String(modes[name]), title },
      text
    );
    node.addEventListener(
      'click',
      () => {
        modes[name] = !modes[name];
        node.setAttribute('aria-pressed', String(modes[name]));
        try {
          localStorage.setItem(KEY, JSON.stringify(modes));
        } catch {
          // It is as wished, until the page is closed.
        }
        changed();
      },
      { signal }
    );
    return node;
  };
  return [
    toggle('times', trans('times'), trans('Show when each line was printed')),
    toggle('wrap', trans('wrap'), trans('Wrap long lines'))
  ];
}
