/** Answers from a snapshot: what is known of a run when nobody can be asked. */
import type { ILogLine, ILogPage, LogOf } from '../run/source';
import type { ISnapshot } from './model';

/** The lines that the snapshot has of a log, by their own numbers. */
function keptLog(snapshot: ISnapshot, rank: LogOf): ILogPage {
  const { log } = snapshot;
  if (typeof rank === 'string') {
    return { ...log, start: 0, total: 0, lines: [], partial: [] };
  }
  if (rank === null || snapshot.run.world_size === 1) {
    return log;
  }
  const own = log.lines.filter(line => line.rank === rank || line.ranks?.includes(rank));
  // The snapshot has the last lines of all ranks, so these are the last ones of this rank.
  const total = Math.max(own.length, snapshot.totals[String(rank)] ?? 0);
  const lines = own.map(({ time, text }, i): ILogLine => {
    return { n: total - own.length + i, rank, time, text };
  });
  const partial = log.partial?.filter(line => line.rank === rank);
  return { ...log, total, lines, partial };
}

function part(log: ILogPage, start: number, count: number): ILogPage {
  const first = start < 0 ? Math.max(0, log.total + start) : Math.min(start, log.total);
  const lines = log.lines.filter(line => line.n >= first && line.n < first + count);
  return { ...log, start: lines[0]?.n ?? first, lines };
}

/** What is known of the lines asked for while more can be asked for later; null where that is nothing. */
export function keptPage(
  snapshot: ISnapshot,
  rank: LogOf,
  start: number,
  count: number
): ILogPage | null {
  if (typeof rank === 'string') {
    return null; // of launchers nothing is kept
  }
  const found = part(keptLog(snapshot, rank), start, count);
  if (found.total === 0) {
    return found;
  }
  // At the end of a log fewer lines than were asked for are better than none.
  return found.lines.length && (start < 0 || found.start === start) ? found : null;
}

/** The same when there is nobody to ask: what is known is then the whole log. */
export function keptPageAlone(
  snapshot: ISnapshot,
  rank: LogOf,
  start: number,
  count: number
): ILogPage {
  const log = keptLog(snapshot, rank);
  const lines = log.lines.map((line, n) => ({ ...line, n }));
  return part({ ...log, total: lines.length, lines }, start, count);
}
