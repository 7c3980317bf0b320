/** In which order the list of runs is, and what its rows say that tells runs apart. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { RunsModel } from '../model/runs';
import type { IRunSummary } from '../run/source';
import { columnsOf, differs, shownValue } from '../table/columns';

const MOST_PARAMETERS = 3;

export function SortChoice(props: {
  model: RunsModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { model, trans } = props;
  const names = (values: (run: IRunSummary) => object | undefined) => [
    ...new Set(model.runs.flatMap(run => Object.keys(values(run) ?? {})))
  ];
  const metrics = names(run => run.final);
  const parameters = names(run => run.parameters);
  const known = model.filter.sort;
  return (
    <select
      className="jpd-sb-input"
      aria-label={trans.__('Sort runs')}
      value={known ?? ''}
      onChange={event => void model.setFilter({ sort: event.target.value || null })}
    >
      <option value="">{trans.__('Newest first')}</option>
      <option value="created">{trans.__('Oldest first')}</option>
      <option value="name">{trans.__('By name')}</option>
      <option value="-duration">{trans.__('Longest first')}</option>
      {metrics.flatMap(name => [
        <option key={`${name} up`} value={`metric:${name}`}>
          {trans.__('%1, lowest first', name)}
        </option>,
        <option key={`${name} down`} value={`-metric:${name}`}>
          {trans.__('%1, highest first', name)}
        </option>
      ])}
      {parameters.map(name => (
        <option key={`of ${name}`} value={`param:${name}`}>
          {trans.__('By %1', name)}
        </option>
      ))}
    </select>
  );
}

/** The parameters in which these runs differ, and a metric, as a row has room for them: `lr=0.1 · loss 0.3`. */
export function useDistinction(model: RunsModel): (run: IRunSummary) => string {
  const { runs } = model;
  const by = model.filter.sort?.replace(/^-/, '') ?? '';
  return React.useMemo(() => {
    const columns = columnsOf(runs, text => text);
    const chosen = columns.filter(one => one.id === by && one.kind !== 'run');
    const differing = columns.filter(one => one.kind === 'param' && differs(one, runs));
    const metrics = columns.filter(one => one.kind === 'metric');
    const shown = [
      ...new Set([...chosen, ...differing.slice(0, MOST_PARAMETERS), ...metrics.slice(0, 1)])
    ];
    return run =>
      shown
        .map(({ label, kind, key }) => {
          const value = shownValue(key(run));
          return value && (kind === 'param' ? `${label}=${value}` : `${label} ${value}`);
        })
        .filter(Boolean)
        .join(' · ');
  }, [runs, by]);
}
