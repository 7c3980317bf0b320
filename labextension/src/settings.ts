/** The settings, with defaults where JupyterLab has none. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

export interface ISettings {
  /** Seconds between two readings of the list of runs. */
  poll_s: number;
  showBackends: boolean;
  /** Whether notebooks have the button that shows and opens the clusters. */
  showInNotebook: boolean;
  /** Runs that ended more days ago are removed; 0: none. */
  keepDays: number;
  /** Whether the end of a run is told to who looks elsewhere. */
  tellEnds: boolean;
}

export function readSettings(settings: ISettingRegistry.ISettings): ISettings {
  const number = (name: string, otherwise: number) => {
    const value = settings.get(name).composite;
    return typeof value === 'number' && Number.isFinite(value) ? value : otherwise;
  };
  return {
    poll_s: Math.max(1, number('pollInterval', 10)),
    showBackends: settings.get('showBackends').composite !== false,
    showInNotebook: settings.get('showInNotebook').composite !== false,
    keepDays: Math.max(0, number('keepDays', 0)),
    tellEnds: settings.get('tellEnds').composite !== false
  };
}
