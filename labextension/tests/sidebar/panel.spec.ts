// The panel as a whole: what was typed in its form is not lost when something else takes the form's place.
import { nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ClustersModel } from '../../src/model/clusters';
import { NotebookChoices } from '../../src/model/notebooks';
import { RunsModel } from '../../src/model/runs';
import { DistributedPanel } from '../../src/sidebar/panel';
import type { IDistributed, IRunOpener } from '../../src/tokens';
import { FakeServer } from './fakeserver';

const trans = nullTranslator.load('');
let panel: DistributedPanel;
let runs: RunsModel;
let clusters: ClustersModel;
let notebooks: NotebookChoices;

beforeEach(() => {
  (globalThis as unknown as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = false;
  const server = new FakeServer();
  server.saved = [{ name: 'box', backend: 'local', options: { np: 4 }, problem: null }];
  const { lists } = server;
  runs = new RunsModel({ server, lists, trans });
  clusters = new ClustersModel(server, trans);
  notebooks = new NotebookChoices(null);
  const dist: IDistributed = { server, lists, trans, settings: null, runs, clusters, notebooks };
  panel = new DistributedPanel(dist, {} as IRunOpener, nullTranslator, () => undefined);
  Widget.attach(panel, document.body);
});

afterEach(() => {
  panel.dispose();
  [runs, clusters, notebooks].forEach(one => one.dispose());
});

const name = () => panel.node.querySelector<HTMLInputElement>('#jpd-field-name');
const dialog = () => document.querySelector<HTMLElement>('.jp-Dialog');

async function typed(text: string): Promise<void> {
  await vi.waitFor(() => expect(name()).not.toBeNull());
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')?.set;
  set?.call(name(), text);
  name()?.dispatchEvent(new Event('input', { bubbles: true }));
  await vi.waitFor(() => expect(name()?.value).toBe(text));
}

async function answer(label: string): Promise<void> {
  await vi.waitFor(() => expect(dialog()?.textContent).toContain('Discard the changes?'));
  const buttons = [...document.querySelectorAll<HTMLElement>('.jp-Dialog button')];
  buttons.find(one => one.textContent === label)?.click();
  await vi.waitFor(() => expect(dialog()).toBeNull());
}

it('asks before a command takes away a form with values, and not before it takes an empty one', async () => {
  await panel.edit(null);
  await vi.waitFor(() => expect(name()).not.toBeNull());
  await panel.focusClusters();
  await vi.waitFor(() => expect(name()).toBeNull());
  await panel.edit(null);
  await typed('half');
  for (const command of [() => panel.focusClusters(), () => panel.edit('box')]) {
    const done = command();
    await answer('Keep editing');
    await done;
    expect(name()?.value).toBe('half');
  }
  const done = panel.edit('box');
  await answer('Discard');
  await done;
  await vi.waitFor(() => expect(name()?.value).toBe('box'));
});
