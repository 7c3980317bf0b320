/** Answers from a snapshot: what is known of a run when nobody can be asked. */
import type { ILogLine, ILogPage } from '../run/source';
import type { ISnapshot } from './model';

/** Lines of a log as far as the snapshot has them; null where it has none of those asked for. */
export function keptPage(
  snapshot: ISnapshot,
  rank: number | null,
  start: number,
  count: number
): ILogPage | null {
  const { log } = snapshot;
  let lines = log.lines;
  let total = log.total;
  if (rank !== null && snapshot.run.world_size > 1) {
    const own = lines.filter(line => (line.ranks ?? [line.rank]).includes(rank));
    // The snapshot has the last lines of all ranks, so these are the last ones of this rank.
    total = Math.max(own.length, snapshot.totals[String(rank)] ?? 0);
    lines = own.map((line, i): ILogLine => ({
      n: total - own.length + i,
      rank,
      time: line.time,
      text: line.text
    }));
  }
  const first = start < 0 ? Math.max(0, total + start) : Math.min(start, total);
  const asked = lines.filter(line => line.n >= first && line.n < first + count);
  if (!asked.length && first < total) {
    return null;
  }
  return { ...log, start: asked[0]?.n ?? first, total, lines: asked };
}

/** The same, with a dim line in place of each that is not there. */
export function keptPageWhole(
  snapshot: ISnapshot,
  rank: number | null,
  start: number,
  count: number
): ILogPage {
  const page = keptPage(snapshot, rank, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  const total = page?.total ?? snapshot.log.total;
  const first = start < 0 ? Math.max(0, total + start) : Math.min(start, total);
  const known = new Map((page?.lines ?? []).map(line => [line.n, line]));
  const lines: ILogLine[] = [];
  for (let n = first; n < Math.min(total, first + count); n++) {
    lines.push(
      known.get(n) ?? { n, rank: rank ?? 0, ranks: [], time: 0, text: '\x1b[2m… not kept\x1b[0m' }
    );
  }
  return { ...snapshot.log, start: first, total, lines };
}
