// The menu of runs: what it offers for one run and for several.
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { nullTranslator } from '@jupyterlab/translation';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { RunsModel } from '../../src/model/runs';
import { RunMenu } from '../../src/runmenu';
import type { IDistributed } from '../../src/tokens';
import { FakeServer, makeRun } from './fakeserver';

const trans = nullTranslator.load('');

describe('the menu of runs', () => {
  afterEach(() => document.querySelectorAll('.lm-Menu').forEach(menu => menu.remove()));

  it('offers what these runs can have, and does it', async () => {
    const server = new FakeServer();
    const [alive, ended, other] = [
      makeRun(1, { state: 'running', ended: null }),
      makeRun(2, { state: 'succeeded', ended: 1, notebook: '/srv/a.ipynb', tags: ['old'] }),
      makeRun(3, { state: 'failed', ended: 1 })
    ];
    server.all = [alive, ended, other];
    const runs = new RunsModel({ server, lists: server.lists, trans });
    const execute = vi.fn(async () => undefined);
    const app = { commands: { execute } } as unknown as JupyterFrontEnd;
    const opener = { open: vi.fn(), compare: vi.fn() };
    const again = vi.fn(async () => undefined);
    const dist = { server, runs, trans } as unknown as IDistributed;
    const menu = new RunMenu(app, dist, opener, { again });
    const rename = vi.fn();
    const { commands } = menu;
    const labels = (...of: typeof server.all) => {
      menu.openFor(of, { clientX: 1, clientY: 1 }, rename);
      const shown = commands.listCommands().filter(id => commands.isVisible(id));
      return shown.map(id => commands.label(id));
    };
    const choose = (label: string, ...of: typeof server.all) => {
      labels(...of);
      return commands.execute(commands.listCommands().find(id => commands.label(id) === label)!);
    };
    expect(labels(alive)).toContain('Stop');
    expect(labels(alive)).not.toContain('Remove…');
    expect(labels(ended)).toEqual(
      expect.arrayContaining(['Open Notebook', 'Run Again', 'Rename…', 'Add Tag…', 'Remove…'])
    );
    expect(labels(ended)).not.toContain('Stop');
    const both = ['Compare 2 Runs', 'Add Tag…', 'Copy Run IDs', 'Remove…'];
    expect(labels(ended, other)).toEqual(both);
    expect(labels(alive, other)).toEqual(both.slice(0, 3));

    await choose('Rename…', ended);
    expect(rename).toHaveBeenCalledOnce();
    await choose('Compare 2 Runs', ended, other);
    expect(opener.compare).toHaveBeenCalledWith([ended.id, other.id]);
    await choose('Run Again', ended);
    expect(again).toHaveBeenCalledOnce();
    await choose('Open Notebook', ended);
    expect(execute).toHaveBeenCalledWith('docmanager:open', { path: 'srv/a.ipynb' });
    runs.dispose();
  });
});
