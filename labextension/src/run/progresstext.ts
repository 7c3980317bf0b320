/** How far a progress bar is, how fast it moves and when it will be there, as a text. */
import { bytes, count, duration, rate } from './format';
import type { IProgress } from './source';
import type { Trans } from './trans';

/** How many percent of a bar are done, rounded down, so that 100 means finished. Null without a total. */
export function percentOf({ n, total }: IProgress): number | null {
  // Multiplied first: 100 * (29 / 100) is less than 29.
  return total ? Math.floor(Math.min(100, Math.max(0, (100 * n) / total))) : null;
}

/** How long a bar still takes; null where nobody knows. */
export function secondsLeft({ n, total, rate: perSecond }: IProgress): number | null {
  return total !== null && perSecond ? Math.ceil(Math.max(0, total - n) / perSecond) : null;
}

/** `over`: it moves no more, and so it has no pace. */
export function progressText(progress: IProgress, trans: Trans, over = false): string {
  const { n, total, desc, unit, note } = progress;
  const amount = unit === 'B' ? bytes : count;
  const texts = [
    `${desc ? `${desc} ` : ''}${amount(n)}${total === null ? '' : `/${amount(total)}`}`
  ];
  const perSecond = over ? null : progress.rate;
  if (perSecond) {
    texts.push(
      unit === 'B'
        ? `${bytes(perSecond)}/s`
        : unit
          ? `${rate(perSecond)} ${unit}/s`
          : trans('%1 steps/s', rate(perSecond))
    );
    const left = secondsLeft(progress);
    if (left) {
      texts.push(trans('%1 left', duration(left)));
    }
  }
  if (note) {
    texts.push(note);
  }
  return texts.join(' · ');
}
