/** How much room a log gets: a short one no more than it needs. So the view of most cells keeps its height. */
import type { Growth } from './growth';
import type { LogList } from './list';
import type { LogPages } from './pages';

const SHORT = 3;

export interface IFitted {
  pages: LogPages;
  list: LogList;
  /** It has had lines. */
  begun: boolean;
}

/** Fit the room of a log to its lines. One that grows line by line waits for other parts of the view. */
export function fitLog(log: IFitted, growth: Growth): void {
  const { node, hasInlays } = log.list;
  const short = log.pages.rows <= SHORT && !hasInlays;
  const fit = () => node.classList.toggle('jpd-log-short', short);
  if (log.begun && !short && node.classList.contains('jpd-log-short')) {
    growth.soon(log, fit);
  } else {
    fit();
  }
  log.begun ||= log.pages.rows > 0;
}
