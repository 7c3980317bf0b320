/** What a table of runs has columns for, and how it is put into order and groups. */
import { placeText } from '../run/context';
import { duration, value as shownNumber } from '../run/format';
import { ownValue } from '../run/ownvalue';
import { ended, type IRunSummary } from '../run/source';
import type { Trans } from '../run/trans';

export type Value = boolean | number | string;

export interface IColumn {
  /** `name`, `state`, … or `param:lr`, `metric:loss`, `min:loss`, `max:loss`. */
  id: string;
  label: string;
  /** `extreme`: the lowest or the highest value of a metric. */
  kind: 'run' | 'param' | 'metric' | 'extreme';
  /** What rows are sorted and grouped by; null goes last either way. */
  key: (run: IRunSummary) => Value | null;
  text: (run: IRunSummary) => string;
  numeric: boolean;
}

export interface IGroup {
  key: string;
  runs: IRunSummary[];
}

/** So many parameters and metrics have a column until somebody chooses. */
const MOST_PARAMETERS = 8;
const MOST_METRICS = 4;

export function shownValue(value: Value | null | undefined): string {
  if (value === null || value === undefined) {
    return '';
  }
  if (typeof value !== 'number' || Number.isInteger(value)) {
    return String(value);
  }
  return String(Number(value.toPrecision(5)));
}

/** All columns that these runs can fill. */
export function columnsOf(runs: readonly IRunSummary[], trans: Trans): IColumn[] {
  const seconds = (run: IRunSummary) =>
    run.started === null ? null : (run.ended ?? run.host_time) - run.started;
  const texts: [string, string, (run: IRunSummary) => string | null][] = [
    ['name', trans('Name'), run => run.name],
    ['state', trans('State'), run => run.state],
    ['notebook', trans('Notebook'), run => run.notebook && lastPart(run.notebook)],
    ['cell', trans('Cell'), run => run.label || null],
    ['tags', trans('Tags'), run => run.tags?.join(', ') || null],
    ['note', trans('Note'), run => run.note?.split('\n')[0] || null],
    ['where', trans('Where'), run => placeText(run, trans)],
    ['id', trans('Id'), run => run.id]
  ];
  const columns = texts.map(([id, label, key]): IColumn => ({
    id,
    label,
    kind: 'run',
    key,
    text: run => key(run) ?? '',
    numeric: false
  }));
  const age = (run: IRunSummary) => Math.max(0, run.host_time - run.created);
  columns.splice(
    4,
    0,
    {
      ...{ id: 'age', label: trans('Age'), kind: 'run', numeric: true },
      key: run => -run.created,
      text: run => shortAge(age(run), trans)
    },
    {
      ...{ id: 'duration', label: trans('Duration'), kind: 'run', numeric: true },
      key: seconds,
      text: run => {
        const took = seconds(run);
        return took === null ? '' : `${duration(took)}${ended(run.state) ? '' : ' …'}`;
      }
    }
  );
  const of = (
    kind: 'param' | 'metric',
    values: (run: IRunSummary) => Record<string, Value> | undefined
  ): IColumn[] =>
    names(runs, values).map(name => ({
      id: `${kind}:${name}`,
      label: name,
      kind,
      key: run => ownValue(values(run), name) ?? null,
      text: run => shownValue(ownValue(values(run), name)),
      numeric: runs.every(run => typeof (ownValue(values(run), name) ?? 0) === 'number')
    }));
  const ends = (['min', 'max'] as const).flatMap((end, at) =>
    of('metric', run => endOf(run.extremes, at)).map(column => ({
      ...column,
      id: column.id.replace('metric', end),
      label: end === 'min' ? trans('%1 (min)', column.label) : trans('%1 (max)', column.label),
      kind: 'extreme' as const
    }))
  );
  const told = [...of('param', run => run.parameters), ...of('metric', run => run.final), ...ends];
  // What people and machines say of a run is less often looked at than how it went.
  return [...columns.slice(0, 6), ...told, ...columns.slice(6)];
}

/** One of the two ends of each metric. */
function endOf(
  extremes: Record<string, number[]> | undefined,
  at: number
): Record<string, number> | undefined {
  return (
    extremes && Object.fromEntries(Object.entries(extremes).map(([name, ends]) => [name, ends[at]]))
  );
}

function names(
  runs: readonly IRunSummary[],
  values: (run: IRunSummary) => Record<string, Value> | undefined
): string[] {
  return [...new Set(runs.flatMap(run => Object.keys(values(run) ?? {})))];
}

function lastPart(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

export function shortAge(seconds: number, trans: Trans): string {
  if (seconds < 3600) {
    return trans('%1 min', Math.floor(seconds / 60));
  }
  return seconds < 86_400
    ? trans('%1 h', Math.floor(seconds / 3600))
    : trans('%1 d', Math.floor(seconds / 86_400));
}

/** Whether runs have more than one value here; one that lacks it counts as another one. */
export function differs(column: IColumn, runs: readonly IRunSummary[]): boolean {
  return runs.some(run => column.key(run) !== column.key(runs[0]));
}

/** What is shown until somebody chooses: who and when, the parameters that differ, some metrics. */
export function usual(columns: readonly IColumn[], runs: readonly IRunSummary[]): string[] {
  const cell = runs.some(run => run.label && run.label !== run.name) ? ['cell'] : [];
  const tags = runs.some(run => run.tags?.length) ? ['tags'] : [];
  const differing = columns.filter(one => one.kind === 'param' && differs(one, runs));
  const metrics = columns.filter(one => one.kind === 'metric');
  return [
    ...['name', 'state', 'notebook', ...cell, 'age', 'duration', ...tags],
    ...differing.slice(0, MOST_PARAMETERS).map(one => one.id),
    ...metrics.slice(0, MOST_METRICS).map(one => one.id)
  ];
}

export function sorted(
  runs: readonly IRunSummary[],
  column: IColumn | undefined,
  down: boolean
): IRunSummary[] {
  return column
    ? [...runs].sort((a, b) => compared(column.key(a), column.key(b), down))
    : [...runs];
}

const collator = new Intl.Collator(undefined, { numeric: true });

function compared(a: Value | null, b: Value | null, down: boolean): number {
  if (a === null || b === null) {
    return a === b ? 0 : a === null ? 1 : -1;
  }
  const order =
    typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(String(a), String(b));
  return down ? -order : order;
}

/** Runs by what they have in a column, in the order in which the first of each comes.
 *
 * A run with several tags is in the group of each. */
export function grouped(runs: readonly IRunSummary[], column: IColumn): IGroup[] {
  const groups = new Map<string, IRunSummary[]>();
  for (const run of runs) {
    const tags = column.id === 'tags' && run.tags?.length ? run.tags : null;
    for (const key of tags ?? [column.text(run)]) {
      groups.set(key, [...(groups.get(key) ?? []), run]);
    }
  }
  return [...groups].map(([key, members]) => ({ key, runs: members }));
}

/** What a group has in a column: what all have, or the mean of numbers and their range; else nothing. */
export function ofGroup(column: IColumn, runs: readonly IRunSummary[], trans: Trans): string {
  const texts = new Set(runs.map(run => column.text(run)));
  if (texts.size === 1) {
    return [...texts][0];
  }
  const numbers = runs
    .map(run => column.key(run))
    .filter((one): one is number => typeof one === 'number');
  if ((column.kind === 'metric' || column.kind === 'extreme') && numbers.length) {
    const mean = numbers.reduce((sum, one) => sum + one / numbers.length, 0);
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)].map(end => shownNumber(end));
    return trans('mean %1 (%2 – %3)', shownNumber(mean), low, high);
  }
  return column.kind === 'param' ? trans('%1 values', texts.size) : '';
}
