/** The runs of a table, page by page. */
import type { IServer } from '../model/server';
import type { IRunSummary } from '../run/source';

const PAGE = 1000;

export async function allRuns(server: Pick<IServer, 'runs'>, text: string): Promise<IRunSummary[]> {
  const all: IRunSummary[] = [];
  let total = 1;
  while (all.length < total) {
    const before = all.at(-1)?.id ?? null;
    const page = await server.runs({ text, limit: PAGE, before });
    all.push(...page.runs);
    total = page.runs.length ? page.total : 0;
  }
  return all;
}
