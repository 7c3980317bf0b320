/** How much room a log gets: a short one no more than it needs. So the view of most cells keeps its height. */
import type { JointGrowth } from './jointgrowth';
import type { LogList } from './loglist';
import type { LogPages } from './logpages';

const SHORT = 3;

export interface IFitted {
  pages: LogPages;
  list: LogList;
  /** It has had lines since it was read anew, or since the user changed its filter. */
  begun: boolean;
}

/** Fit the room of a log to its lines. One that grows line by line waits for other parts of the view. */
export function fitLog(log: IFitted, growth: JointGrowth): void {
  const { node } = log.list;
  const isShort = () => log.pages.rows <= SHORT && !log.list.hasInlays;
  // Meanwhile it may have become short again.
  const fit = () => node.classList.toggle('jpd-log-short', isShort());
  if (isShort() || !node.classList.contains('jpd-log-short')) {
    fit();
  } else if (log.begun) {
    growth.soon(log, fit);
  } else {
    fit();
    growth.now();
  }
  log.begun ||= log.pages.rows > 0;
}
