/** The sessions above the runs: ranks that stay between cells, what they hold, and what can be done with them. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { addBelowIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { ISessionInfo, ISessionRank } from '../answers/sessions';
import { bytes, duration } from '../run/format';
import { IconButton } from './runrow';

/** A session that ends so soon says so. */
const SOON_S = 600;

export interface ISessionsProps {
  sessions: readonly ISessionInfo[];
  trans: TranslationBundle;
  /** Null: no notebook is open. */
  onInsert: ((name: string) => void) | null;
  onRestart: (name: string) => void;
  onStop: (name: string) => void;
}

export function Sessions(props: ISessionsProps): React.ReactElement | null {
  const { sessions, trans } = props;
  if (!sessions.length) {
    return null;
  }
  return (
    <section className="jpd-sb-sessions" aria-label={trans.__('Sessions')}>
      <h4 className="jpd-sb-caption">{trans.__('Sessions')}</h4>
      {sessions.map(session => (
        <Session key={session.name} {...props} session={session} />
      ))}
    </section>
  );
}

function Session(props: ISessionsProps & { session: ISessionInfo }): React.ReactElement {
  const { session, trans } = props;
  const { name, names, ranks, here } = session;
  const warning = soon(session, trans);
  return (
    <div className="jpd-sb-card">
      <details className="jpd-sb-session">
        <summary>
          <span className="jpd-sb-row-name">{name}</span>
          <span className="jpd-sb-dim"> {describe(session, trans)}</span>
          {warning && <span className="jpd-sb-card-problem">{warning}</span>}
        </summary>
        <Facts
          label={trans.__('Ranks')}
          rows={ranks.map(one => [trans.__('rank %1', one.rank), describeRank(one, trans)])}
        />
        <Facts label={trans.__('Names on rank 0')} rows={Object.entries(names)} />
      </details>
      {here && (
        <span className="jpd-sb-card-actions">
          <IconButton
            icon={addBelowIcon}
            label={trans.__('Insert a cell for the session %1', name)}
            disabled={!props.onInsert}
            onClick={() => props.onInsert?.(name)}
          />
          <IconButton
            icon={refreshIcon}
            label={trans.__('Restart the ranks of %1', name)}
            onClick={() => props.onRestart(name)}
          />
          <IconButton
            icon={stopIcon}
            label={trans.__('Stop the session %1', name)}
            onClick={() => props.onStop(name)}
          />
        </span>
      )}
    </div>
  );
}

function Facts(props: { label: string; rows: readonly (readonly string[])[] }) {
  return props.rows.length ? (
    <table className="jpd-sb-facts" aria-label={props.label}>
      <tbody>
        {props.rows.map(([name, text]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td title={text}>{text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  ) : null;
}

/** `4 ranks on local · idle 12:05 · 2.1 GB`, with how many cells wait. */
export function describe(session: ISessionInfo, trans: TranslationBundle): string {
  const { ranks, backend, world_size: size, idle_since: idle, queued } = session;
  const memory = ranks.reduce((sum, rank) => sum + (rank.memory_bytes ?? 0), 0);
  const idle_s = idle === null ? 0 : Math.floor(session.host_time - idle);
  return [
    trans._n('%1 rank on %2', '%1 ranks on %2', size, backend),
    idle === null
      ? trans.__('runs a cell')
      : trans.__('idle %1', idle_s ? duration(idle_s) : '').trim(),
    ...(queued ? [trans._n('%1 cell waits', '%1 cells wait', queued)] : []),
    ...(memory ? [bytes(memory)] : []),
    ...(session.here ? [] : [session.host])
  ].join(' · ');
}

function soon(session: ISessionInfo, trans: TranslationBundle): string | null {
  const { idle_since: idle, idle_timeout_s: limit, host_time: now } = session;
  if (idle === null || limit === null) {
    return null;
  }
  const left = idle + limit - now;
  return left < Math.min(SOON_S, limit / 2)
    ? trans.__('Ends in %1 if no cell uses it', duration(left))
    : null;
}

function describeRank(rank: ISessionRank, trans: TranslationBundle): string {
  const { pid, memory_bytes: memory, gpu_memory_bytes: gpu, state } = rank;
  return [
    ...(state === 'running' ? [] : [trans.__('ended; the next cell starts the rank again')]),
    ...(pid === null ? [] : [trans.__('pid %1', pid)]),
    ...(memory === null ? [] : [bytes(memory)]),
    ...(gpu === null ? [] : [trans.__('GPU memory %1', bytes(gpu))])
  ].join(' · ');
}
