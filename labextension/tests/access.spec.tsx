// What axe-core finds in the sidebar, a run's tab, the table and the form. Colours are checked in a browser.
import { nullTranslator } from '@jupyterlab/translation';
import axe from 'axe-core';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { ClustersModel } from '../src/model/clusters';
import { RunsModel } from '../src/model/runs';
import { english } from '../src/run/trans';
import { RunView } from '../src/run/view';
import { ClustersSection } from '../src/sidebar/clusters';
import { ClusterForm } from '../src/sidebar/form';
import { RunsSection } from '../src/sidebar/runs';
import { RunsTable } from '../src/table/view';
import { FakeSource, runInfo } from './run/fakesource';
import { FakeServer, LOCAL, makeRun, STATES } from './sidebar/fakeserver';

vi.mock('uplot', () => ({
  default: class {
    destroy() {}
    setData() {}
    setScale() {}
  }
}));

const trans = nullTranslator.load('');
let root: Root;
let box: HTMLElement;
let server: FakeServer;

beforeEach(() => {
  (globalThis as unknown as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;
  box = document.createElement('main');
  document.body.appendChild(box);
  root = createRoot(box);
  server = new FakeServer();
});

afterEach(() => {
  act(() => root.unmount());
  box.remove();
  vi.restoreAllMocks();
});

async function violations(node: HTMLElement): Promise<string[]> {
  const rules = { 'color-contrast': { enabled: false } };
  const globals = globalThis as unknown as Record<string, unknown>;
  globals.IS_REACT_ACT_ENVIRONMENT = false; // clocks of rows may tick meanwhile
  const found = await axe.run(node, { rules, resultTypes: ['violations'] });
  globals.IS_REACT_ACT_ENVIRONMENT = true;
  return found.violations.flatMap(({ id, nodes }) => nodes.map(one => `${id}: ${one.html}`));
}

const nothing = () => undefined;

it('axe finds nothing in the sidebar, with runs and without', async () => {
  server.saved = [{ name: 'box', backend: 'local', options: { np: 4 }, problem: null }];
  const clusters = new ClustersModel(server, trans);
  const runs = new RunsModel({ server, lists: server.lists, trans });
  const render = () =>
    act(() =>
      root.render(
        <>
          <ClustersSection
            {...{ model: clusters, trans, notebook: 'a.ipynb', used: 'box', pending: false }}
            {...{ onUse: nothing, onInsert: nothing, onMenu: nothing, onDelete: nothing }}
            {...{ showBackends: true, onNew: nothing, onSaveSite: nothing, onOpenRun: nothing }}
          />
          <RunsSection
            {...{ model: runs, trans, comparing: runs.total > 0, elsewhere: null }}
            {...{ onOpen: nothing, onStop: nothing, onRemove: nothing, onRename: nothing }}
            {...{ onCompare: nothing, onEndCompare: nothing, onStartCompare: nothing }}
            {...{ onMenu: nothing, onFirstCell: nothing, onExample: nothing }}
          />
        </>
      )
    );
  runs.active = true;
  await clusters.refresh();
  await runs.refresh();
  render();
  act(() => box.querySelector<HTMLElement>('.jpd-sb-fold')?.click());
  expect(await violations(box)).toEqual([]);
  server.all = STATES.map((state, at) => makeRun(at, { state, ended: at < 3 ? null : 1 }));
  await runs.refresh();
  render();
  expect(box.querySelectorAll('.jpd-sb-row').length).toBe(STATES.length);
  expect(await violations(box)).toEqual([]);
  clusters.dispose();
  runs.dispose();
});

it('axe finds nothing in the form of a cluster', async () => {
  const backend = {
    ...LOCAL,
    first: ['np', 'env'],
    sections: [{ title: 'Run', fields: ['cold'] }]
  };
  act(() =>
    root.render(
      <ClusterForm
        {...{ backends: [backend], name: 'box', oldName: 'box', trans, onInstall: null }}
        data={{ backend: 'local', options: { np: 0 } }}
        mayDiscard={async () => true}
        ask={(name, options) => server.meaning(name, options)}
        onSave={async () => undefined}
        onCancel={nothing}
      />
    )
  );
  const save = [...box.querySelectorAll('button')].find(one => one.textContent === 'Save');
  await act(async () => save?.click());
  expect(box.querySelector('[role=alert]')).not.toBeNull();
  act(() => box.querySelectorAll('details').forEach(one => (one.open = true)));
  expect(await violations(box)).toEqual([]);
});

it('axe finds nothing in a run, while it runs and when it has failed', async () => {
  vi.spyOn(HTMLElement.prototype, 'clientWidth', 'get').mockReturnValue(600);
  vi.spyOn(HTMLElement.prototype, 'clientHeight', 'get').mockReturnValue(180);
  const source = new FakeSource(runInfo(8, 'running', { notes: ['one note'], files: [] }));
  source.lines = ['one', '\x1b[31mtwo\x1b[0m'];
  const line = { steps: [0, 1], values: [2, 1], times: [0, 1] };
  source.curveList = Array.from({ length: 8 }, (_, at) => ({
    name: `part/m${at}`,
    ranks: [{ rank: 0, ...line }],
    band: { ...line, mean: [2, 1], min: [2, 1], max: [2, 1], whole: 2, ranks: [] }
  }));
  source.errorList = [
    { rank: 1, time: 1, kind: 'exception', type: 'ValueError', message: 'bad', text: 'bad' }
  ].map(error => ({
    ...error,
    ...{ frames: [], exit_code: 1, signal_name: null, peak_memory_bytes: null },
    ...{ collateral: false, host: 'a', kind: 'exception' as const }
  }));
  source.cardTold = {
    ...{ title: 'Rank 1 failed', about: 'ValueError', what: 'bad', hints: ['look'], causes: [] },
    ...{ places: [], others: [], files: null, parts: [] }
  } as unknown as typeof source.cardTold;
  source.resultList = [{ ranks: [0, 1], repr: '3', error: null, bytes: 1 }];
  const view = new RunView({ source });
  box.append(view.node);
  await vi.waitFor(() => expect(view.node.querySelector('.jpd-chart')).not.toBeNull());
  await vi.waitFor(() => expect(view.node.querySelector('.jpd-row')).not.toBeNull());
  expect(await violations(view.node)).toEqual([]);
  source.tell({ kind: 'run', run: runInfo(8, 'failed', { ended: 1011 }) });
  await vi.waitFor(() => expect(view.node.textContent).toContain('Rank 1 failed'));
  expect(await violations(view.node)).toEqual([]);
  view.dispose();
});

it('axe finds nothing in the table of runs, in groups and empty', async () => {
  server.all = STATES.map((state, at) => makeRun(at, { state, parameters: { lr: at } }));
  const { lists } = server;
  const table = new RunsTable({ server, lists, trans: english, open: nothing, compare: nothing });
  box.append(table.node);
  await vi.waitFor(() => expect(box.querySelector('tbody tr[data-id]')).not.toBeNull());
  const group = box.querySelector('select') as HTMLSelectElement;
  group.value = 'state';
  group.dispatchEvent(new Event('change'));
  expect(await violations(table.node)).toEqual([]);
  server.all = [];
  await table.refresh();
  expect(await violations(table.node)).toEqual([]);
  table.dispose();
});
