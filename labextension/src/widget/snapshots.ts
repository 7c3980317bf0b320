/** Answers from a snapshot: what is known of a run when nobody can be asked. */
import type {
  Attempt,
  IDisplays,
  ILogLine,
  ILogPage,
  IMediaPage,
  IPlace,
  LogOf,
  RunChange
} from '../run/source';
import type { Trans } from '../run/trans';
import type { ISnapshot } from './model';

/** Of a run of whose displays, steps and media a snapshot has none. */
export const NO_DISPLAYS = { attempt: 0, version: 0, start: 0, total: 0, displays: [] };
export const NO_STEPS = { attempt: 0, ranks: [], straggler: null, critical: false, missing: [] };
export const NO_MEDIA = { attempt: 0, version: 0, series: [] };

/** Of which nothing is kept in the snapshot. */
export function isEarlier(attempt: Attempt): attempt is number {
  return attempt !== null && attempt !== undefined;
}

/** What a new snapshot says has changed. */
export function newsOf(id: string, { run, told, totals, log, displays }: ISnapshot): RunChange[] {
  const news: RunChange[] = [{ kind: 'run', run }];
  if (told) {
    news.push({ kind: 'log', id, ranks: totals, all: log.total }, { kind: 'curves', id });
  }
  return displays ? [...news, { kind: 'displays', id, version: displays.version }] : news;
}

/** Which part of the log is kept, if not all of it is. */
export function partOfLog({ log }: ISnapshot, trans: Trans): string | null {
  if (log.total <= log.lines.length) {
    return null;
  }
  const [kept, all] = [log.lines.length, log.total].map(n => n.toLocaleString('en'));
  return trans(
    'The kernel of this run is not connected. The log shows the last %1 of %2 lines.',
    kept,
    all
  );
}

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

/** What is known of the lines asked for; null where that is nothing, and more can be asked for later. */
export function knownPage(
  snapshot: ISnapshot,
  rank: LogOf,
  start: number,
  count: number
): ILogPage | null {
  return (snapshot.told ? keptPage : keptPageAlone)(snapshot, rank, start, count);
}

/** The displays that are kept; where there is nobody to ask they stand between the lines that are kept. */
export function keptDisplays(snapshot: ISnapshot): IDisplays {
  const { displays = NO_DISPLAYS, log, told, run, totals } = snapshot;
  if (told) {
    return displays;
  }
  const before = log.lines[0]?.n ?? 0;
  const beforeOf = (rank: number) => {
    if (run.world_size === 1) {
      return before;
    }
    const { lines, total } = keptLog(snapshot, rank);
    return Math.max(totals[String(rank)] ?? 0, total) - lines.length;
  };
  const firsts = new Map<number, number>();
  const moved = (place: IPlace): IPlace => {
    const { rank } = place;
    const first = firsts.get(rank) ?? beforeOf(rank);
    firsts.set(rank, first);
    return { ...place, line: place.line - first, row: place.row - before };
  };
  return {
    ...displays,
    displays: displays.displays.map(display => ({
      ...display,
      places: display.places?.map(moved).filter(({ line, row }) => line >= 0 && row >= 0)
    }))
  };
}

/** The last step of what was logged under a name; null where somebody can be asked for it, or nothing is kept. */
export function keptMedia({ told, media }: ISnapshot, name: string): IMediaPage | null {
  return told ? null : (media?.pages.find(page => page.name === name) ?? null);
}
