/** One run in the list: state, name, progress, and what can be done with it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon, deleteIcon, type LabIcon, stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { isComposing } from '../run/keys';
import { placeText } from '../run/context';
import { percentOf, secondsLeft } from '../run/progresstext';
import { translating } from '../run/trans';
import { ended, type IRunSummary } from '../run/source';
import { duration } from '../run/format';
import {
  age,
  basename,
  elapsed,
  ProgressBar,
  StateMark,
  stateName,
  stateOf,
  useTick
} from './marks';

export interface IRunRowProps {
  run: IRunSummary;
  /** What tells it from the others in sight. */
  distinction: string;
  /** Whether the keyboard reaches this row with Tab. */
  current: boolean;
  /** null while runs are not being chosen for a comparison. */
  chosen: boolean | null;
  stopping: boolean;
  renaming: boolean;
  trans: TranslationBundle;
  /** What was typed for a name; null: given up. */
  onNamed: (name: string | null) => void;
  onOpen: () => void;
  onChoose: () => void;
  onStop: () => void;
  onRemove: () => void;
  onMenu: (event: React.MouseEvent) => void;
}

export function RunRow(props: IRunRowProps): React.ReactElement {
  const { run, trans } = props;
  const alive = !ended(run.state);
  // The clock of the run's host, as far as its last answer told.
  const skew = React.useMemo(() => run.host_time - Date.now() / 1000, [run.host_time]);
  useTick(alive);
  const tab = props.current ? 0 : -1;
  const took = duration(elapsed(run, skew));
  const where = run.notebook ? basename(run.notebook) : '';
  const kind = placeText(run, translating(trans));
  const status = statusText(run, props.stopping, skew, trans);
  if (props.renaming) {
    return <NameField run={run} trans={trans} onNamed={props.onNamed} />;
  }
  return (
    <div
      className="jpd-sb-row"
      data-state={run.state}
      data-chosen={props.chosen || undefined}
      onContextMenu={event => {
        // JupyterLab's own menu says nothing of runs.
        event.preventDefault();
        event.stopPropagation();
        props.onMenu(event);
      }}
    >
      {props.chosen !== null && (
        <input
          type="checkbox"
          className="jpd-sb-row-check"
          checked={props.chosen}
          tabIndex={tab}
          aria-label={trans.__('Compare %1', run.name)}
          onChange={props.onChoose}
        />
      )}
      <button
        type="button"
        className="jpd-sb-row-main"
        data-main=""
        tabIndex={tab}
        title={tooltip(run, skew, trans)}
        aria-label={[
          ...new Set([run.name, stateOf(run, trans), status, props.distinction, where, kind, took])
        ]
          .filter(Boolean)
          .join(', ')}
        onClick={event =>
          props.chosen === null && !event.ctrlKey && !event.metaKey
            ? props.onOpen()
            : props.onChoose()
        }
      >
        <StateMark state={run.state} />
        <span className="jpd-sb-row-text">
          <span className="jpd-sb-line">
            <span className="jpd-sb-row-name">{run.name}</span>
            <span className="jpd-sb-aside">{took}</span>
          </span>
          <span className="jpd-sb-line jpd-sb-dim">
            <span className="jpd-sb-row-where">
              {[props.distinction, kind, where !== run.name && where].filter(Boolean).join(' · ')}
            </span>
            <span
              className="jpd-sb-aside"
              data-tone={
                props.stopping || run.stall || run.state === 'unwatched' ? 'warn' : undefined
              }
            >
              {status}
            </span>
          </span>
        </span>
      </button>
      <span className="jpd-sb-row-actions">
        {alive ? (
          <IconButton
            icon={props.stopping ? closeIcon : stopIcon}
            label={props.stopping ? trans.__('Kill %1', run.name) : trans.__('Stop %1', run.name)}
            tab={tab}
            onClick={props.onStop}
          />
        ) : (
          <IconButton
            icon={deleteIcon}
            label={trans.__('Remove %1', run.name)}
            tab={tab}
            onClick={props.onRemove}
          />
        )}
      </span>
      <ProgressBar run={run} label={trans.__('Progress of %1', run.name)} />
    </div>
  );
}

/** A field in the place of a row, as large as it. */
function NameField(props: Pick<IRunRowProps, 'run' | 'trans' | 'onNamed'>): React.ReactElement {
  const ended = React.useRef(false);
  const end = (name: string | null) => {
    if (!ended.current) {
      ended.current = true;
      props.onNamed(name);
    }
  };
  return (
    <div className="jpd-sb-row jpd-sb-row-naming">
      <input
        className="jpd-sb-input"
        aria-label={props.trans.__('Name of the run')}
        defaultValue={props.run.name}
        maxLength={120}
        autoFocus
        onFocus={event => event.target.select()}
        onBlur={event => end(event.target.value.trim())}
        onKeyDown={event => {
          event.stopPropagation();
          if (isComposing(event.nativeEvent)) {
            return;
          }
          if (event.key === 'Enter' || event.key === 'Escape') {
            end(event.key === 'Enter' ? event.currentTarget.value.trim() : null);
          }
        }}
      />
    </div>
  );
}

function statusText(
  run: IRunSummary,
  stopping: boolean,
  skew: number,
  trans: TranslationBundle
): string {
  if (ended(run.state)) {
    const when = age(Date.now() / 1000 + skew - (run.ended ?? run.created), trans);
    return run.state === 'succeeded' ? when : `${stateName(run.state, trans)} · ${when}`;
  }
  if (stopping) {
    return trans.__('stopping…');
  }
  if (run.state === 'unwatched') {
    return trans.__('unwatched');
  }
  if (run.stall) {
    return trans.__('stalled');
  }
  const done = run.progress && percentOf(run.progress);
  if (done !== null && run.progress) {
    const left = secondsLeft(run.progress);
    const percent = trans.__('%1 %', done);
    return left === null ? percent : trans.__('%1, %2 left', percent, duration(left));
  }
  if (run.progress) {
    return String(run.progress.n);
  }
  return run.state === 'pending' ? trans.__('starting…') : '';
}

function tooltip(run: IRunSummary, skew: number, trans: TranslationBundle): string {
  const begun = new Date((run.created - skew) * 1000).toLocaleString();
  const parameters = Object.entries(run.parameters ?? {}).map(one => one.join('='));
  return [
    trans.__('%1: %2', run.name, stateOf(run, trans)),
    run.reason,
    run.state === 'unwatched' &&
      trans.__('Stop ends its ranks. %1 starts a new supervisor.', `%dist attach ${run.id}`),
    trans.__('%1, started %2', placeText(run, translating(trans)), begun),
    run.notebook,
    run.named && run.label,
    run.tags?.join(', '),
    run.note,
    parameters.join(', '),
    run.id,
    trans.__('Press F2 to rename the run.')
  ]
    .filter(Boolean)
    .join('\n');
}

export function IconButton(props: {
  icon: LabIcon;
  label: string;
  tab?: number;
  pressed?: boolean;
  disabled?: boolean;
  onClick: (event: React.MouseEvent<HTMLButtonElement>) => void;
}): React.ReactElement {
  return (
    <button
      type="button"
      className="jpd-sb-icon-button"
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      tabIndex={props.tab}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <props.icon.react tag="span" elementSize="normal" />
    </button>
  );
}
