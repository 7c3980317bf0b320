/** What differs between runs: a row for each thing that is not the same in all of them. */
import type { IEnvironment } from '../answers/runs';
import { el } from '../run/dom';
import { duration } from '../run/format';
import { ownValue } from '../run/ownvalue';
import type { IRunInfo } from '../run/source';
import type { Trans } from '../run/trans';
import { shownValue, type Value } from '../table/columns';

export interface IDifference {
  name: string;
  kind: 'run' | 'param' | 'metric' | 'package';
  /** A text for each run. */
  values: string[];
}

export interface IDescribed {
  run: IRunInfo;
  environment: IEnvironment;
}

/** Packages beyond these say that the whole environment is another one. */
const MOST_PACKAGES = 12;

/** Metrics always, of all else what is not the same in all runs. */
export function differences(described: readonly IDescribed[], trans: Trans): IDifference[] {
  const runs = described.map(one => one.run);
  const rows: IDifference[] = [];
  const add = (
    name: string,
    kind: IDifference['kind'],
    value: (one: IDescribed) => Value | null | undefined
  ) => rows.push({ name, kind, values: described.map(one => shownValue(value(one))) });
  const all = (values: (one: IDescribed) => object | undefined) => [
    ...new Set(described.flatMap(one => Object.keys(values(one) ?? {})))
  ];
  for (const name of all(one => one.run.parameters)) {
    add(name, 'param', one => ownValue(one.run.parameters, name));
  }
  add(trans('state'), 'run', one => one.run.state);
  add(trans('backend'), 'run', one => one.run.backend);
  add(trans('ranks'), 'run', one => one.run.world_size);
  add(trans('notebook'), 'run', one => one.run.notebook);
  add(trans('flags'), 'run', one => one.run.line);
  add(trans('tags'), 'run', one => one.run.tags?.join(', '));
  add(trans('Python'), 'run', one => one.environment.python);
  add(trans('commit'), 'run', one => commit(one.environment, trans));
  const known = described.every(one => one.environment.packages);
  const packages = known ? all(one => one.environment.packages) : [];
  for (const name of packages) {
    add(name, 'package', one => ownValue(one.environment.packages, name) ?? '–');
  }
  const differing = rows.filter(row => new Set(row.values).size > 1);
  const others = differing.filter(row => row.kind === 'package');
  const shown = differing.filter(row => others.indexOf(row) < MOST_PACKAGES);
  if (others.length > MOST_PACKAGES) {
    const left = trans('%1 more packages differ', others.length - MOST_PACKAGES);
    shown.push({ name: left, kind: 'package', values: runs.map(() => '') });
  }
  rows.length = 0;
  add(trans('duration'), 'run', ({ run }) =>
    run.started === null ? null : duration((run.ended ?? run.host_time) - run.started)
  );
  for (const name of all(one => one.run.final)) {
    add(name, 'metric', one => ownValue(one.run.final, name));
  }
  return [...shown, ...rows];
}

/** A commit as people write it, and whether it says all. */
export function commit({ git }: IEnvironment, trans: Trans): string {
  if (!git) {
    return '';
  }
  const short = git.commit.slice(0, 10);
  return git.dirty ? trans('%1, changed', short) : short;
}

export function differencesNode(
  rows: readonly IDifference[],
  names: readonly string[],
  trans: Trans
): HTMLElement {
  const head = el('tr', {}, el('td'), ...names.map(name => el('th', { scope: 'col' }, name)));
  const body = rows.map(row =>
    el(
      'tr',
      {},
      el('th', { scope: 'row', 'data-kind': row.kind, title: row.name }, row.name),
      ...row.values.map(value => el('td', { title: value.length > 30 ? value : null }, value))
    )
  );
  const table = el('table', {}, el('thead', {}, head), el('tbody', {}, ...body));
  return el(
    'div',
    { class: 'jpd-differences', role: 'region', tabindex: 0, 'aria-label': trans('What differs') },
    table
  );
}
