/** How logs are shown: with the time of each line, and with long lines wrapped. Remembered by the browser. */
import type { IContext } from './context';
import { toggle } from './dom';
import { remember, remembered } from './browserstorage';

export interface ILogModes {
  times: boolean;
  wrap: boolean;
}

const KEY = 'jupyter-dist:log';

/** As they were chosen last. */
export function rememberedModes(): ILogModes {
  const kept = remembered(KEY);
  return { times: kept.times === true, wrap: kept.wrap === true };
}

/** A button for each. */
export function modeToggles(
  modes: ILogModes,
  changed: () => void,
  { trans, signal }: IContext
): HTMLElement[] {
  const mode = (name: keyof ILogModes, text: string, title: string) => {
    const turn = (on: boolean) => {
      modes[name] = on;
      remember(KEY, modes);
      changed();
    };
    return toggle({ text, title, on: modes[name] }, turn, signal);
  };
  return [
    mode('times', trans('times'), trans('Show when each line was printed')),
    mode('wrap', trans('wrap'), trans('Wrap long lines'))
  ];
}
