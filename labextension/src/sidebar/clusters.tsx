/** The section "Clusters": cards of what cells can run on, for the notebook in front. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { addBelowIcon, checkIcon, closeIcon, ellipsesIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { ClustersModel, ITest } from '../model/clusters';
import type { IBackend, ICluster } from '../model/server';
import { IconButton } from './runrow';
import { describeSite, siteOf, Sites } from './sites';

/** What a card stands for; a backend can be used as it is, like a cluster without options. */
export interface ITarget {
  kind: 'cluster' | 'backend';
  name: string;
}

export interface IClustersSectionProps {
  model: ClustersModel;
  trans: TranslationBundle;
  /** The name of the notebook in front; null: none is open. */
  notebook: string | null;
  used: string | null;
  pending: boolean;
  showBackends: boolean;
  onUse: (target: ITarget) => void;
  onInsert: (target: ITarget) => void;
  onMenu: (target: ITarget, anchor: DOMRect) => void;
  onDelete: (target: ITarget) => void;
  onNew: () => void;
  /** Save what leads to a site under a name. */
  onSaveSite: (backend: string, options: Record<string, unknown>) => void;
  onOpenRun: (id: string) => void;
}

export function ClustersSection(props: IClustersSectionProps): React.ReactElement {
  const { model, trans } = props;
  const list = React.useRef<HTMLDivElement>(null);
  const [currentKey, setCurrent] = React.useState('');
  const [more, setMore] = React.useState(false);
  const offered = props.showBackends || !model.clusters.length ? model.backends : [];
  const ready = offered.filter(one => isReady(one) || one.name === props.used);
  const rest = offered.filter(one => !ready.includes(one));
  const folds = ready.length > 0 && rest.length > 0;
  const targets: ITarget[] = [
    ...model.clusters.map(({ name }) => ({ kind: 'cluster' as const, name })),
    // Usable ones first; the others are folded.
    ...[...ready, ...(more || !folds ? rest : [])].map(({ name }) => ({
      kind: 'backend' as const,
      name
    }))
  ];
  const current = Math.max(
    0,
    targets.findIndex(target => keyOf(target) === currentKey)
  );

  const onKeyDown = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -targets.length, End: targets.length }[
      event.key
    ];
    if (step !== undefined && targets.length) {
      event.preventDefault();
      const to = Math.max(0, Math.min(targets.length - 1, current + step));
      setCurrent(keyOf(targets[to]));
      list.current?.querySelectorAll<HTMLElement>('[data-main]')[to]?.focus();
    } else if (event.key === 'Delete' && targets[current]?.kind === 'cluster') {
      event.preventDefault();
      props.onDelete(targets[current]);
    }
  };

  const card = (target: ITarget, index: number) => (
    <Card
      key={keyOf(target)}
      {...props}
      target={target}
      current={index === current}
      onFocus={() => setCurrent(keyOf(target))}
    />
  );
  const saved = targets.filter(target => target.kind === 'cluster');
  const backends = targets.slice(saved.length);
  return (
    <div className="jpd-sb-section" aria-busy={!model.loaded && !model.problem}>
      {model.problem && (
        <div className="jpd-sb-problem" role="alert">
          <p>{model.problem}</p>
          <button type="button" className="jpd-sb-button" onClick={() => void model.refresh()}>
            {trans.__('Try again')}
          </button>
        </div>
      )}
      {!model.loaded && !model.problem && (
        <p className="jpd-sb-empty jpd-sb-dim">{trans.__('Looking for backends …')}</p>
      )}
      <div className="jpd-sb-cards" ref={list} onKeyDown={onKeyDown}>
        {saved.length > 0 && (
          <ul aria-label={trans.__('Saved clusters')}>
            {saved.map((target, index) => card(target, index))}
          </ul>
        )}
        {backends.length > 0 && (
          <>
            <h3 className="jpd-sb-caption">{trans.__('Backends')}</h3>
            <ul aria-label={trans.__('Backends')}>
              {backends
                .slice(0, folds ? ready.length : undefined)
                .map((target, index) => card(target, saved.length + index))}
            </ul>
            {folds && (
              <button
                type="button"
                className="jpd-sb-fold"
                aria-expanded={more}
                onClick={() => setMore(!more)}
              >
                {trans.__('More backends (%1)', rest.length)}
              </button>
            )}
            {folds && more && (
              <ul aria-label={trans.__('More backends')}>
                {backends
                  .slice(ready.length)
                  .map((target, index) => card(target, saved.length + ready.length + index))}
              </ul>
            )}
          </>
        )}
        {model.loaded && !saved.length && (
          <p className="jpd-sb-empty jpd-sb-dim">
            {trans.__('A cluster is a backend and its options under a name.')}{' '}
            <button type="button" className="jpd-sb-link" onClick={props.onNew}>
              {trans.__('New cluster')}
            </button>
          </p>
        )}
      </div>
    </div>
  );
}

/** Whether a cell can run on it as it is: its packages are installed, and it has something to run on. */
function isReady({ available, problem, no_site, sites }: IBackend): boolean {
  return available && !problem && (!no_site || Boolean(sites?.length));
}

function keyOf(target: ITarget): string {
  return `${target.kind}:${target.name}`;
}

function Card(
  props: IClustersSectionProps & { target: ITarget; current: boolean; onFocus: () => void }
): React.ReactElement {
  const { target, model, trans, notebook } = props;
  const cluster = model.clusters.find(
    ({ name }) => target.kind === 'cluster' && name === target.name
  );
  const backend = model.backend(cluster?.backend ?? target.name);
  const detail = cluster ? describeCluster(cluster, trans) : describeBackend(backend, trans);
  const site = cluster && siteOf(cluster, backend);
  const found = site
    ? describeSite(site, trans)
    : cluster
      ? describeBackend(backend, trans)
      : (backend?.no_site ?? null);
  const inUse = gpusInUse(backend);
  // That is so where the server runs; the kernel, which has the last word, may know better.
  const missing = backend && !backend.available ? needs(backend, trans) : null;
  const problem = missing ?? cluster?.problem ?? backend?.problem ?? null;
  const used = notebook !== null && props.used === target.name;
  const tab = props.current ? 0 : -1;
  const test = model.test(target.name);
  return (
    <li
      className="jpd-sb-card"
      data-used={used || undefined}
      data-missing={missing !== null || undefined}
      onFocus={props.onFocus}
    >
      <button
        type="button"
        className="jpd-sb-row-main"
        data-main=""
        tabIndex={tab}
        aria-pressed={used}
        title={
          notebook === null
            ? trans.__('Open a notebook to use %1 in it', target.name)
            : used
              ? trans.__('%1 uses %2; press to use the default again', notebook, target.name)
              : trans.__('Use %1 for %2', target.name, notebook)
        }
        onClick={() => props.onUse(target)}
      >
        <span className="jpd-sb-row-text">
          <span className="jpd-sb-line">
            <span className="jpd-sb-row-name">{target.name}</span>
            {used && (
              <span className="jpd-sb-badge" data-pending={props.pending || undefined}>
                <checkIcon.react tag="span" elementSize="small" />
                {props.pending ? trans.__('waiting for the kernel') : trans.__('in use')}
              </span>
            )}
          </span>
          <span className="jpd-sb-line jpd-sb-dim">
            <span className="jpd-sb-detail">{detail}</span>
          </span>
          {found && !problem && (
            <span className="jpd-sb-line jpd-sb-dim">
              <span className="jpd-sb-row-where" title={found}>
                {found}
              </span>
            </span>
          )}
          {inUse && !problem && (
            <span className="jpd-sb-line jpd-sb-dim">
              <span className="jpd-sb-row-where" title={inUse}>
                {inUse}
              </span>
            </span>
          )}
          {problem && <span className="jpd-sb-card-problem">{problem}</span>}
        </span>
      </button>
      <span className="jpd-sb-card-actions">
        <IconButton
          icon={addBelowIcon}
          label={trans.__('Insert a cell that runs on %1', target.name)}
          tab={tab}
          disabled={notebook === null}
          onClick={() => props.onInsert(target)}
        />
        <IconButton
          icon={ellipsesIcon}
          label={trans.__('More actions for %1', target.name)}
          tab={tab}
          onClick={event => props.onMenu(target, event.currentTarget.getBoundingClientRect())}
        />
      </span>
      {!cluster && backend?.sites && backend.sites.length > 0 && (
        <Sites
          backend={backend.name}
          sites={backend.sites}
          tab={tab}
          trans={trans}
          onSave={site => props.onSaveSite(backend.name, site.options)}
        />
      )}
      {test && (
        <TestOutcome
          test={test}
          trans={trans}
          tab={tab}
          onOpenRun={props.onOpenRun}
          onDismiss={() => model.dismissTest(target.name)}
        />
      )}
    </li>
  );
}

function TestOutcome(props: {
  test: ITest;
  trans: TranslationBundle;
  tab: number;
  onOpenRun: (id: string) => void;
  onDismiss: () => void;
}): React.ReactElement {
  const { test } = props;
  return (
    <div className="jpd-sb-card-test" data-state={test.state} role="status">
      <span>{test.text}</span>
      {test.hosts && (
        <ul className="jpd-sb-card-hosts">
          {test.hosts.map(({ host, passed }) => (
            <li key={host} data-state={passed === null ? 'unknown' : passed ? 'passed' : 'failed'}>
              {passed === null
                ? props.trans.__('%1: not asked', host)
                : passed
                  ? props.trans.__('✓ %1', host)
                  : props.trans.__('✗ %1: does not work', host)}
            </li>
          ))}
        </ul>
      )}
      {test.state === 'failed' && test.run && (
        <button
          type="button"
          className="jpd-sb-link"
          onClick={() => props.onOpenRun(test.run ?? '')}
        >
          {props.trans.__('Show the run')}
        </button>
      )}
      {test.state !== 'running' && (
        <IconButton
          icon={closeIcon}
          label={props.trans.__('Dismiss the test result')}
          tab={props.tab}
          onClick={props.onDismiss}
        />
      )}
    </div>
  );
}

function needs(backend: IBackend, trans: TranslationBundle): string {
  return backend.install
    ? trans.__('needs: %1', backend.install)
    : (backend.problem ?? trans.__('not installed'));
}

/** `local × 4 · gpus_per_worker 1`: the backend, and what is set. */
export function describeCluster(cluster: ICluster, trans: TranslationBundle): string {
  const { np, ...rest } = cluster.options;
  const head = typeof np === 'number' ? trans.__('%1 × %2', cluster.backend, np) : cluster.backend;
  // Values of env can be secrets.
  const set = Object.entries(rest).map(([name, value]) =>
    typeof value === 'object' || value === true ? words(name) : `${words(name)} ${String(value)}`
  );
  const launched = cluster.launched_from?.split('/').pop();
  const from = launched ? [trans.__('launched from %1', launched)] : [];
  return [head, ...set, ...from].join(' · ');
}

/** `2 cores · no GPU · Python 3.11.7`: what was found, and what matters most first. */
export function describeBackend(backend: IBackend | undefined, trans: TranslationBundle): string {
  const parts: string[] = [];
  const found = Object.entries(backend?.detail ?? {}).sort(([a], [b]) => weight(b) - weight(a));
  for (const [name, value] of found) {
    if (value === null || value === '' || value === undefined) {
      continue;
    }
    if (name === 'cores') {
      parts.push(trans._n('%1 core', '%1 cores', Number(value)));
    } else if (name === 'gpus') {
      const count = Array.isArray(value) ? value.length : Number(value);
      parts.push(count ? trans._n('%1 GPU', '%1 GPUs', count) : trans.__('no GPU'));
    } else if (name === 'gpus_in_use') {
      continue; // a line of its own
    } else if (Array.isArray(value)) {
      parts.push(value.map(String).join(', '));
    } else if (typeof value !== 'object') {
      parts.push(name === 'python' ? `Python ${String(value)}` : `${words(name)} ${String(value)}`);
    }
  }
  return parts.join(' · ');
}

/** `GPUs 0-3 are held by run … of train.ipynb; 4 are free`, as the server tells it; null: all are free. */
export function gpusInUse(backend: IBackend | undefined): string | null {
  const told = backend?.detail.gpus_in_use;
  return typeof told === 'string' && told ? told : null;
}

function weight(name: string): number {
  return ['gpus', 'cores'].indexOf(name);
}

function words(name: string): string {
  return name.replace(/_/g, ' ');
}
