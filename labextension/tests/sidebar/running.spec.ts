import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it, vi } from 'vitest';
import { ClustersModel } from '../../src/model/clusters';
import { NotebookChoices } from '../../src/model/notebooks';
import { RunsModel } from '../../src/model/runs';
import { RunningRuns } from '../../src/running';
import { FakeServer, makeRun } from './fakeserver';

describe('RunningRuns', () => {
  it('lists the runs that go on, opens them and stops them', async () => {
    const server = new FakeServer();
    server.all = [
      makeRun(1),
      makeRun(2, { state: 'running', ended: null }),
      makeRun(3, { state: 'pending', ended: null })
    ];
    const trans = nullTranslator.load('');
    const open = vi.fn();
    const manager = new RunningRuns(
      {
        server,
        trans,
        lists: server.lists,
        runs: new RunsModel({ server, lists: server.lists, trans }),
        clusters: new ClustersModel(server, trans),
        notebooks: new NotebookChoices(null),
        settings: null
      },
      { open, table: vi.fn(), compare: vi.fn(), menu: vi.fn() }
    );
    const changed = vi.fn();
    manager.runningChanged.connect(changed);
    await vi.waitFor(() => expect(manager.running().length).toBe(2));
    const [newest, other] = manager.running();
    expect([newest.label(), other.label()]).toEqual(['In[3]', 'In[2]']);
    expect(newest.detail?.()).toBe('train.ipynb · local × 2');
    newest.open?.();
    expect(open).toHaveBeenCalledWith(server.all[2].id);
    manager.shutdownAll();
    await vi.waitFor(() =>
      expect(server.asked.filter(what => what.startsWith('stop'))).toEqual([
        `stop ${server.all[2].id} false`,
        `stop ${server.all[1].id} false`
      ])
    );
    changed.mockClear();
    server.set(server.all[1].id, { progress: { n: 1, total: 2, desc: '', rate: null } });
    expect(changed).not.toHaveBeenCalled();
    server.set(server.all[1].id, { state: 'stopped', ended: 5 });
    expect(changed).toHaveBeenCalledOnce();
    expect(manager.running().map(item => item.label())).toEqual(['In[3]']);
  });
});
