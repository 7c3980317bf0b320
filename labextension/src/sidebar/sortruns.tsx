/** In which order the list of runs is, and what its rows say that tells runs apart. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { caretDownIcon, caretUpIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { RunsModel } from '../model/runs';
import type { IRunSummary } from '../run/source';
import { columnsOf, differs, shownValue } from '../table/columns';
import { IconButton } from './runrow';

const MOST_PARAMETERS = 3;
/** The usual order. */
const NEWEST = '-created';

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
  const sort = model.filter.sort ?? NEWEST;
  const by = sort.replace(/^-/, '');
  const down = sort.startsWith('-');
  const set = (key: string, falling: boolean) => {
    const next = `${falling ? '-' : ''}${key}`;
    void model.setFilter({ sort: next === NEWEST ? null : next });
  };
  const group = (label: string, kind: string, all: readonly string[]) =>
    all.length > 0 && (
      <optgroup label={label}>
        {all.map(name => (
          <option key={name} value={`${kind}:${name}`}>
            {name}
          </option>
        ))}
      </optgroup>
    );
  const direction = down
    ? trans.__('Highest first. Press for lowest first')
    : trans.__('Lowest first. Press for highest first');
  return (
    <span className="jpd-sb-sort">
      <select
        className="jpd-sb-input"
        aria-label={trans.__('Sort runs by')}
        value={by}
        onChange={event => set(event.target.value, event.target.value === 'created')}
      >
        <option value="created">{trans.__('Created')}</option>
        <option value="name">{trans.__('Name')}</option>
        <option value="duration">{trans.__('Duration')}</option>
        {group(trans.__('Metrics'), 'metric', metrics)}
        {group(trans.__('Parameters'), 'param', parameters)}
      </select>
      <IconButton
        icon={down ? caretDownIcon : caretUpIcon}
        label={direction}
        onClick={() => set(by, !down)}
      />
    </span>
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
