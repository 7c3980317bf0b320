/** The section "Runs": filter, list, and the choice of runs to compare. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { RunsModel } from '../model/runs';
import type { IRunSummary, State } from '../run/source';
import type { IRunOpener } from '../tokens';
import { FIRST_CELL } from './insert';
import { basename, stateName } from './marks';
import { RunRow } from './runrow';
import { SortChoice, useDistinction } from './sortruns';
import { WindowedList } from './windowed';

const ROW_HEIGHT = 44;
const TYPING_MS = 200;
const STATES: State[] = [
  'running',
  'pending',
  'unwatched',
  'succeeded',
  'failed',
  'stopped',
  'lost'
];

export interface IRunsSectionProps {
  model: RunsModel;
  trans: TranslationBundle;
  comparing: boolean;
  /** The notebook in front keeps its runs in this folder, and the server reads another one. */
  elsewhere: string | null;
  onOpen: (run: IRunSummary) => void;
  onStop: (run: IRunSummary) => void;
  onRemove: (run: IRunSummary) => void;
  onRename: (run: IRunSummary, name: string) => void;
  onCompare: (ids: readonly string[]) => void;
  onEndCompare: () => void;
  onStartCompare: () => void;
  onMenu: IRunOpener['menu'];
  /** Insert a first cell into the notebook in front; null without one. */
  onFirstCell: (() => void) | null;
  /** Make a notebook with a first cell. */
  onExample: () => void;
}

export function RunsSection(props: IRunsSectionProps): React.ReactElement {
  const { model, trans } = props;
  const { runs, selected } = model;
  const distinction = useDistinction(model);
  const [renaming, setRenaming] = React.useState<string | null>(null);
  const choose = (id: string) => {
    props.onStartCompare();
    model.toggleSelected(id);
  };
  const onKey = (run: IRunSummary, event: React.KeyboardEvent) => {
    const onMain = (event.target as HTMLElement).hasAttribute('data-main');
    if (event.key === 'Delete' || event.key === 'Backspace') {
      event.preventDefault();
      props.onRemove(run);
    } else if (event.key === 'F2' && onMain) {
      event.preventDefault();
      setRenaming(run.id);
    } else if (event.key === ' ' && onMain) {
      event.preventDefault();
      choose(run.id);
    } else if (event.key === 'Enter' && onMain) {
      event.preventDefault();
      props.onOpen(run);
    } else if (event.key === 'Escape' && props.comparing) {
      props.onEndCompare();
    }
  };
  const nothing = model.loaded && !runs.length;
  return (
    <div className="jpd-sb-section" aria-busy={!model.loaded && !model.problem}>
      {(model.total > 0 || model.filtered) && <FilterBar model={model} trans={trans} />}
      {model.problem && <Problem text={model.problem} model={model} trans={trans} />}
      {nothing && !model.problem && <NoRuns {...props} />}
      {runs.length > 0 && props.elsewhere && (
        <p className="jpd-sb-empty jpd-sb-dim">
          {trans.__(
            'Runs of the current notebook are shown only under its cells. Its kernel stores them in %1.',
            props.elsewhere
          )}
        </p>
      )}
      {runs.length > 0 && (
        <WindowedList
          items={runs}
          keyOf={run => run.id}
          label={model.filter.sort ? trans.__('Runs') : trans.__('Runs, newest first')}
          total={model.total}
          rowHeight={ROW_HEIGHT}
          onEnd={() => void model.more()}
          onKey={onKey}
          render={(run, current) => (
            <RunRow
              run={run}
              distinction={distinction(run)}
              current={current}
              chosen={props.comparing ? selected.includes(run.id) : null}
              stopping={model.isStopping(run.id)}
              trans={trans}
              renaming={renaming === run.id}
              onNamed={name => {
                setRenaming(null);
                if (name !== null && name !== run.name) {
                  props.onRename(run, name);
                }
              }}
              onOpen={() => props.onOpen(run)}
              onChoose={() => choose(run.id)}
              onStop={() => props.onStop(run)}
              onRemove={() => props.onRemove(run)}
              onMenu={event => {
                const chosen = props.comparing && selected.includes(run.id);
                const several = chosen ? runs.filter(one => selected.includes(one.id)) : [run];
                props.onMenu(several, event, () => setRenaming(run.id));
              }}
            />
          )}
        />
      )}
      {props.comparing && (
        <div className="jpd-sb-foot" role="group" aria-label={trans.__('Compare runs')}>
          <span className="jpd-sb-foot-text" role="status">
            {selected.length < 2
              ? trans.__('Select two or more runs')
              : trans.__('%1 runs selected', selected.length)}
          </span>
          <button type="button" className="jpd-sb-button" onClick={props.onEndCompare}>
            {trans.__('Cancel')}
          </button>
          <button
            type="button"
            className="jpd-sb-button jpd-sb-primary"
            disabled={selected.length < 2}
            onClick={() => props.onCompare(selected)}
          >
            {trans.__('Compare')}
          </button>
        </div>
      )}
    </div>
  );
}

function FilterBar({
  model,
  trans
}: Pick<IRunsSectionProps, 'model' | 'trans'>): React.ReactElement {
  const [text, setText] = React.useState(model.filter.text);
  React.useEffect(() => {
    if (text === model.filter.text) {
      return;
    }
    const timer = setTimeout(() => void model.setFilter({ text }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const { notebooks } = model;
  const names = notebooks.map(basename);
  const only = (name: string) => names.indexOf(name) === names.lastIndexOf(name);
  return (
    <div className="jpd-sb-filter" role="search" aria-label={trans.__('Filter runs')}>
      <input
        type="search"
        className="jpd-sb-input"
        placeholder={trans.__('Filter runs')}
        aria-label={trans.__('Filter runs by text')}
        value={text}
        onChange={event => setText(event.target.value)}
      />
      <SortChoice model={model} trans={trans} />
      <select
        className="jpd-sb-input"
        aria-label={trans.__('Filter runs by state')}
        value={model.filter.state ?? ''}
        onChange={event =>
          void model.setFilter({ state: (event.target.value || null) as State | null })
        }
      >
        <option value="">{trans.__('Any state')}</option>
        {STATES.map(state => (
          <option key={state} value={state}>
            {stateName(state, trans)}
          </option>
        ))}
      </select>
      {notebooks.length > 0 && (
        <select
          className="jpd-sb-input"
          aria-label={trans.__('Filter runs by notebook')}
          value={model.filter.notebook ?? ''}
          onChange={event => void model.setFilter({ notebook: event.target.value || null })}
        >
          <option value="">{trans.__('Any notebook')}</option>
          {notebooks.map(path => (
            <option key={path} value={path} title={path}>
              {only(basename(path)) ? basename(path) : path}
            </option>
          ))}
        </select>
      )}
    </div>
  );
}

function Problem(
  props: Pick<IRunsSectionProps, 'model' | 'trans'> & { text: string }
): React.ReactElement {
  return (
    <div className="jpd-sb-problem" role="alert">
      <p>{props.text}</p>
      <button type="button" className="jpd-sb-button" onClick={() => void props.model.refresh()}>
        {props.trans.__('Try again')}
      </button>
    </div>
  );
}

function NoRuns(props: IRunsSectionProps): React.ReactElement {
  const { model, trans } = props;
  if (model.filtered) {
    return (
      <div className="jpd-sb-empty">
        <p>{trans.__('No run matches this filter.')}</p>
        <button
          type="button"
          className="jpd-sb-button"
          onClick={() => void model.setFilter({ text: '', state: null, notebook: null })}
        >
          {trans.__('Show all runs')}
        </button>
      </div>
    );
  }
  return (
    <div className="jpd-sb-empty">
      <p>{trans.__('No runs yet. A run starts with a cell such as:')}</p>
      <pre className="jpd-sb-code">{FIRST_CELL}</pre>
      <p className="jpd-sb-buttons">
        {props.onFirstCell && (
          <button
            type="button"
            className="jpd-sb-button jpd-sb-primary"
            onClick={props.onFirstCell}
          >
            {trans.__('Insert into notebook')}
          </button>
        )}
        <button type="button" className="jpd-sb-button" onClick={props.onExample}>
          {trans.__('Open an example')}
        </button>
      </p>
      {props.elsewhere ? (
        <p>
          {trans.__(
            'The kernel of this notebook stores its runs in %1. This server reads %2. These runs are shown only under their cells.',
            props.elsewhere,
            model.root ?? ''
          )}
        </p>
      ) : (
        <p className="jpd-sb-dim">{model.hint}</p>
      )}
    </div>
  );
}
