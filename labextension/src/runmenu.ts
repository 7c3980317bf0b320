/** The menu of runs in the sidebar and in the table, for one run or for several selected ones. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Clipboard, InputDialog } from '@jupyterlab/apputils';
import { MenuSvg } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { type CellActions, contentsPath } from './cellactions';
import { ended, type IRunSummary } from './run/source';
import { attempt, removeRuns, stopRun } from './sidebar/actions';
import type { IDistributed, IRunOpener } from './tokens';

export class RunMenu {
  /** Its items. They act on the runs that the menu was opened for. */
  readonly commands = new CommandRegistry();
  private readonly _menu: MenuSvg;
  private _runs: readonly IRunSummary[] = [];
  private _rename: () => void = () => undefined;

  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _dist: IDistributed,
    private readonly _opener: Pick<IRunOpener, 'open' | 'compare'>,
    private readonly _cells: Pick<CellActions, 'again'>
  ) {
    const { commands } = this;
    this._menu = new MenuSvg({ commands });
    const { trans } = _dist;
    const add = (
      id: string,
      label: string | (() => string),
      isVisible: () => boolean,
      execute: () => unknown
    ) => {
      const command = `jupyter-dist:run-${id}`;
      const describedBy = { args: { type: 'object', properties: {} } };
      commands.addCommand(command, { label, isVisible, execute, describedBy });
      this._menu.addItem({ command });
    };
    const single = () => this._runs.length === 1;
    const every = (is: (run: IRunSummary) => boolean) => () => this._runs.every(is);
    add('open', trans.__('Open'), single, () => this._opener.open(this._runs[0].id));
    add(
      'compare',
      () => trans.__('Compare %1 Runs', this._runs.length),
      () => !single(),
      () => this._opener.compare(this._runs.map(run => run.id))
    );
    const ofNotebook = () => single() && Boolean(this._runs[0].notebook);
    add('notebook', trans.__('Open Notebook'), ofNotebook, () => this._openNotebook());
    add('again', trans.__('Run Again'), single, () => this._runAgain());
    this._menu.addItem({ type: 'separator' });
    add('rename', trans.__('Rename…'), single, () => this._rename());
    add(
      'tag',
      trans.__('Add Tag…'),
      () => true,
      () => this._tag()
    );
    add(
      'copy',
      () => (single() ? trans.__('Copy Run ID') : trans.__('Copy Run IDs')),
      () => true,
      () => Clipboard.copyToSystem(this._runs.map(run => run.id).join('\n'))
    );
    this._menu.addItem({ type: 'separator' });
    add(
      'stop',
      trans.__('Stop'),
      every(run => !ended(run.state)),
      () => this._stop()
    );
    add(
      'remove',
      trans.__('Remove…'),
      every(run => ended(run.state)),
      () => removeRuns(this._dist.runs, this._runs, trans)
    );
  }

  /** Open the menu at a place in the window. `rename` types another name where the run is shown. */
  openFor(
    runs: readonly IRunSummary[],
    at: { clientX: number; clientY: number },
    rename: () => void
  ): void {
    this._runs = runs;
    this._rename = rename;
    this._menu.open(at.clientX, at.clientY);
  }

  private async _openNotebook(): Promise<void> {
    const file = this._runs[0].notebook ?? '';
    const failed = this._dist.trans.__('%1 cannot be opened.', file);
    const open = () =>
      this._app.commands.execute('docmanager:open', {
        path: contentsPath(file)
      }) as Promise<unknown>;
    await attempt(open, failed, this._dist.trans);
  }

  private async _runAgain(): Promise<void> {
    const { server, trans } = this._dist;
    const [run] = this._runs;
    const again = async () => this._cells.again(await server.run(run.id));
    await attempt(again, trans.__('%1 was not run again.', run.name), trans);
  }

  private async _tag(): Promise<void> {
    const { server, runs: model, trans } = this._dist;
    const runs = this._runs;
    const { value } = await InputDialog.getText({
      title: trans.__('Add Tag'),
      okLabel: trans.__('Add')
    });
    const tag = value?.trim();
    if (!tag) {
      return;
    }
    const say = async () => {
      for (const run of runs) {
        await server.about(run.id, { tags: [...new Set([...(run.tags ?? []), tag])] });
      }
      await model.refresh();
    };
    await attempt(say, trans.__('The tag was not added.'), trans);
  }

  private async _stop(): Promise<void> {
    for (const run of this._runs) {
      await stopRun(this._dist.runs, run, this._dist.trans);
    }
  }
}
