/** What can be done from the palette, menus and shortcuts. */
import { InputDialog, Notification } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { distributedIcon, tableIcon } from './icons';
import { ended, type IRunSummary } from './run/source';
import { attempt, cleanRuns, stopRun } from './sidebar/actions';
import { FIRST_CELL, insertSource } from './sidebar/insert';
import { age, basename, stateOf } from './sidebar/marks';
import type { IDistributed, IDistributedPanel, IRunOpener } from './tokens';

export const CommandIDs = {
  show: 'jupyter-dist:show',
  chooseCluster: 'jupyter-dist:choose-cluster',
  newCluster: 'jupyter-dist:new-cluster',
  insertCell: 'jupyter-dist:insert-cell',
  example: 'jupyter-dist:open-example',
  openRun: 'jupyter-dist:open-run',
  stopNewest: 'jupyter-dist:stop-newest-run',
  compare: 'jupyter-dist:compare-runs',
  table: 'jupyter-dist:show-runs',
  clean: 'jupyter-dist:remove-old-runs'
} as const;

const NO_ARGS: ReadonlyJSONObject = { type: 'object', properties: {} };
const DAYS = 30;

/** Register all commands; returns their ids. */
export function addCommands(
  commands: CommandRegistry,
  dist: IDistributed,
  opener: IRunOpener,
  panel: IDistributedPanel,
  /** The kernel of a new notebook. */
  defaultKernel: () => string | undefined
): string[] {
  const { trans, runs, notebooks, server } = dist;
  const latest = async () =>
    attempt(
      async () => (await server.runs({ limit: 100 })).runs,
      trans.__('The runs cannot be listed.'),
      trans
    );

  commands.addCommand(CommandIDs.show, {
    label: trans.__('Show Distributed Panel'),
    icon: distributedIcon,
    execute: () => panel.show(),
    describedBy: { args: NO_ARGS }
  });
  commands.addCommand(CommandIDs.chooseCluster, {
    label: trans.__('Select Cluster for This Notebook'),
    caption: trans.__('Show the clusters and backends that cells can run on'),
    execute: () => panel.showClusters(),
    describedBy: { args: NO_ARGS }
  });
  commands.addCommand(CommandIDs.newCluster, {
    label: trans.__('New Cluster…'),
    execute: () => panel.newCluster(),
    describedBy: { args: NO_ARGS }
  });
  commands.addCommand(CommandIDs.insertCell, {
    label: trans.__('Insert %%%%distribute Cell'),
    isEnabled: () => notebooks.front !== null,
    execute: () => {
      const name = notebooks.of(notebooks.front).name;
      const isCluster = dist.clusters.clusters.some(cluster => cluster.name === name);
      panel.insert({ kind: isCluster ? 'cluster' : 'backend', name: name ?? 'local' });
    },
    describedBy: { args: NO_ARGS }
  });
  commands.addCommand(CommandIDs.example, {
    label: trans.__('Distributed Example'),
    caption: trans.__('Make a notebook with a cell that runs on two processes'),
    icon: distributedIcon,
    execute: async args => {
      // Without a kernel's name JupyterLab asks for one.
      const made: unknown = await commands.execute('notebook:create-new', {
        ...(typeof args.cwd === 'string' ? { cwd: args.cwd } : {}),
        kernelName: defaultKernel() ?? null
      });
      if (made instanceof NotebookPanel) {
        await made.revealed;
        await insertSource(made, FIRST_CELL);
      }
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          cwd: { type: 'string', description: trans.__('The folder of the new notebook') }
        }
      }
    }
  });
  commands.addCommand(CommandIDs.openRun, {
    label: args => (args.id ? trans.__('Open Run') : trans.__('Open Run…')),
    execute: async args => {
      const id = typeof args.id === 'string' ? args.id : await chooseRun(await latest());
      if (id) {
        opener.open(id);
      }
    },
    describedBy: {
      args: {
        type: 'object',
        properties: { id: { type: 'string', description: trans.__('The id of the run') } }
      }
    }
  });
  commands.addCommand(CommandIDs.stopNewest, {
    label: trans.__('Stop Newest Run'),
    execute: async () => {
      const run = (await latest())?.find(one => !ended(one.state));
      if (run) {
        await stopRun(runs, run, trans);
      } else {
        Notification.info(trans.__('No run is running.'), { autoClose: 3000 });
      }
    },
    describedBy: { args: NO_ARGS }
  });
  commands.addCommand(CommandIDs.compare, {
    label: trans.__('Compare Runs'),
    caption: trans.__('Select runs to show their metrics in the same charts'),
    execute: args => {
      if (Array.isArray(args.ids)) {
        opener.compare(args.ids.map(String));
      } else {
        panel.compare();
      }
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ids: {
            type: 'array',
            items: { type: 'string' },
            description: trans.__(
              'The IDs of the runs. Without them, the runs are selected in the panel.'
            )
          }
        }
      }
    }
  });
  commands.addCommand(CommandIDs.table, {
    label: trans.__('Show Runs as a Table'),
    caption: trans.__(
      'All runs with their parameters and last metrics, to sort, group and compare'
    ),
    icon: tableIcon,
    execute: () => opener.table(),
    describedBy: { args: NO_ARGS }
  });
  commands.addCommand(CommandIDs.clean, {
    label: trans.__('Remove Old Runs…'),
    execute: async () => {
      const { value } = await InputDialog.getNumber({
        title: trans.__('Remove Old Runs'),
        label: trans.__('Runs that ended more than this many days ago'),
        value: DAYS,
        okLabel: trans.__('Continue')
      });
      if (value !== null && value >= 0) {
        await cleanRuns(runs, value, trans);
      }
    },
    describedBy: { args: NO_ARGS }
  });
  return Object.values(CommandIDs);

  async function chooseRun(found: readonly IRunSummary[] | undefined): Promise<string | null> {
    if (!found) {
      return null;
    }
    if (!found.length) {
      Notification.info(trans.__('There are no runs yet.'), { autoClose: 3000 });
      return null;
    }
    const now = found[0].host_time;
    // The number makes equal names different: the answer is a text.
    const items = found.map((run, index) =>
      [
        `${index + 1}. ${run.name}`,
        run.notebook && basename(run.notebook),
        stateOf(run, trans),
        age(now - run.created, trans)
      ]
        .filter(Boolean)
        .join(' · ')
    );
    const { button, value } = await InputDialog.getItem({
      title: trans.__('Open Run'),
      items,
      okLabel: trans.__('Open')
    });
    return button.accept && value ? (found[items.indexOf(value)]?.id ?? null) : null;
  }
}
