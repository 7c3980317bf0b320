/** The lines of a log that are selected, to be pasted elsewhere. */
import { plainLine } from './ansi';
import { reason, type IContext } from './context';
import { count, ranges } from './format';
import type { LogPages } from './logpages';
import { ranksOf } from './source';

const MOST = 100_000;

/** Without colours, and behind their ranks where they are of several (`ranked`). */
export async function copyLines(
  pages: LogPages,
  chosen: { first: number; end: number },
  ranked: boolean,
  { trans, announce }: IContext
): Promise<void> {
  const lines: string[] = [];
  try {
    const end = Math.min(chosen.end, chosen.first + MOST);
    for await (const part of pages.read(chosen.first, end)) {
      for (const line of part) {
        const ranks = ranked ? `[${ranges(ranksOf(line))}] ` : '';
        lines.push(ranks + plainLine(line.text));
      }
    }
    await navigator.clipboard.writeText(lines.join('\n') + '\n');
    announce(
      chosen.end > end
        ? trans('The first %1 lines are copied; download the log for all', count(lines.length))
        : lines.length === 1
          ? trans('1 line copied')
          : trans('%1 lines copied', count(lines.length))
    );
  } catch (error) {
    announce(trans('The lines cannot be copied: %1', reason(error)));
  }
}
