/** What a backend has found to run on, such as clusters that are up: what each has, free and in total. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { addIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { IAmount, ISite } from '../answers/forms';
import type { IBackend, ICluster } from '../model/server';
import { bytes } from '../run/format';
import { IconButton } from './runrow';

export function Sites(props: {
  backend: string;
  sites: readonly ISite[];
  tab: number;
  trans: TranslationBundle;
  onSave: (site: ISite) => void;
}): React.ReactElement {
  const { trans } = props;
  return (
    <ul className="jpd-sb-sites" aria-label={trans.__('What runs for %1', props.backend)}>
      {props.sites.map(site => {
        const told = describeSite(site, trans);
        return (
          <li key={site.name} className="jpd-sb-site">
            <span className="jpd-sb-site-text">
              <span className="jpd-sb-site-name">{site.name}</span>
              <span className={site.problem ? 'jpd-sb-card-problem' : 'jpd-sb-dim'} title={told}>
                {told}
              </span>
            </span>
            {Object.keys(site.options).length > 0 && (
              <IconButton
                icon={addIcon}
                label={trans.__('Save %1 as a cluster', site.name)}
                tab={props.tab}
                onClick={() => props.onSave(site)}
              />
            )}
          </li>
        );
      })}
    </ul>
  );
}

/** `2 nodes · 3 of 4 CPUs free · 1 of 2 GPUs free (A100) · 5.2 GB of 8 GB free` */
export function describeSite(site: ISite, trans: TranslationBundle): string {
  if (site.problem) {
    return site.problem;
  }
  const { nodes, cpus, gpus, memory_bytes, gpu_types } = site;
  const kinds = gpu_types?.length ? ` (${gpu_types.join(', ')})` : '';
  const counted = (amount: IAmount) => [Number(amount.free.toFixed(2)), amount.total] as const;
  const parts = [
    nodes !== undefined && trans._n('%1 node', '%1 nodes', nodes),
    cpus && trans.__('%1 of %2 CPUs free', ...counted(cpus)),
    gpus &&
      (gpus.total ? trans.__('%1 of %2 GPUs free%3', ...counted(gpus), kinds) : trans.__('no GPU')),
    memory_bytes && trans.__('%1 of %2 free', bytes(memory_bytes.free), bytes(memory_bytes.total))
  ].filter(Boolean);
  return parts.length ? parts.join(' · ') : (site.told ?? '');
}

/** The site that a saved cluster leads to; undefined where it leads elsewhere, or does not say. */
export function siteOf(cluster: ICluster, backend: IBackend | undefined): ISite | undefined {
  return backend?.sites?.find(({ options }) => {
    const leading = Object.entries(options);
    return leading.length && leading.every(([name, value]) => cluster.options[name] === value);
  });
}
