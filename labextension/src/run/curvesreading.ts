/** Reads a run's curves again and again: after the first time, only what is new is sent. */
import type { IBand, ICurve, ICurves, IRankCurve } from '../answers/metrics';
import type { ICurvesQuery, IRunSource } from './source';

export class CurvesReading {
  private _known: ICurves | null = null;

  constructor(private readonly _source: IRunSource) {}

  /** The curves of all names that were asked for so far; those that are not asked for now may be older. */
  async read(points: number, query: Omit<ICurvesQuery, 'since'> = {}): Promise<ICurves> {
    const since = this._known?.version;
    const news = await this._source.curves(points, { ...query, since });
    return (this._known = patched(this._known, news));
  }
}

/** What is known now, after the news. */
export function patched(before: ICurves | null, news: ICurves): ICurves {
  const found = new Map(before?.curves.map(curve => [curve.name, curve]));
  for (const curve of news.curves) {
    found.set(curve.name, patchedCurve(found.get(curve.name), curve));
  }
  const curves = news.names.flatMap(name => found.get(name) ?? []);
  return { ...news, curves };
}

function patchedCurve(before: ICurve | undefined, news: ICurve): ICurve {
  const known = new Map(before?.ranks.map(rank => [rank.rank, rank]));
  return {
    ...news,
    band: news.band && joined(before?.band, news.band, BAND),
    ranks: news.ranks.map(rank => joined(known.get(rank.rank), rank, LINE))
  };
}

const BAND = ['steps', 'mean', 'min', 'max', 'times'] as const;
const LINE = ['steps', 'values', 'times'] as const;

function joined<T extends IBand | IRankCurve>(
  before: T | null | undefined,
  { keep, ...news }: T,
  lists: readonly string[]
): T {
  const whole = { ...news } as unknown as Record<string, unknown[]>;
  const old = before as unknown as Record<string, unknown[]> | null | undefined;
  if (keep && old) {
    lists.forEach(name => (whole[name] = [...old[name].slice(0, keep), ...whole[name]]));
  }
  return whole as unknown as T;
}
