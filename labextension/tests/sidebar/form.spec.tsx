import { nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, describe, expect, it, type Mock, vi } from 'vitest';
import { ApiError } from '../../src/api';
import type { IBackend } from '../../src/model/server';
import { ClustersModel } from '../../src/model/clusters';
import { ClusterForm } from '../../src/sidebar/form';
import { formFields } from '../../src/sidebar/schema';
import { fits } from '../../src/sidebar/sections';
import { FakeServer, LOCAL, RAY } from './fakeserver';

const trans = nullTranslator.load('');
const WITH_FORM: IBackend = {
  ...LOCAL,
  first: ['np', 'env'],
  sections: [
    { title: 'GPUs', fields: ['gpus_per_worker'] },
    { title: 'Run', fields: ['cold'] }
  ]
};
/** Installed, and with nothing to run on. */
const NOWHERE: IBackend = {
  ...LOCAL,
  name: 'kubernetes',
  no_site: 'No kubeconfig was found.',
  places: ['gpus_per_worker'],
  run_schema: {
    properties: {
      hosts: {
        ...{ type: 'string', title: 'Hosts', metavar: 'A:4,B:4' },
        wanted: 'hosts such as node1:4,node2:4'
      }
    }
  }
};
let root: Root;
let box: HTMLElement;
let server: FakeServer;
let model: ClustersModel;
let done: Mock<(what: unknown) => void>;

beforeEach(() => {
  vi.useFakeTimers();
  (globalThis as unknown as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;
  box = document.createElement('div');
  document.body.appendChild(box);
  root = createRoot(box);
  server = new FakeServer();
  model = new ClustersModel(server, trans);
  done = vi.fn();
  discarding = false;
  discards.length = 0;
});

/** What is answered when the form asks whether it may discard, and how often it has asked. */
let discarding = false;
const discards: boolean[] = [];

afterEach(() => {
  act(() => root.unmount());
  model.dispose();
  box.remove();
  vi.useRealTimers();
});

const all = (selector: string) => [...box.querySelectorAll<HTMLElement>(selector)];
const field = (name: string) => box.querySelector<HTMLInputElement>(`#jpd-field-${name}`);
const button = (text: string) =>
  all('button').find(one => one.textContent === text) as HTMLButtonElement;
const click = (text: string) => act(async () => button(text).click());
const line = () => box.querySelector('form > .jpd-sb-meaning code')?.textContent;
const wait = (ms: number) => act(async () => vi.advanceTimersByTimeAsync(ms));
const errorOf = (name: string) => box.querySelector(`#jpd-field-${name}-error`)?.textContent;
const labels = () => (all('label') as HTMLLabelElement[]).map(label => label.textContent);

function type(target: Element | null, text: string): void {
  const input = target as HTMLInputElement;
  const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(input) as object, 'value')?.set;
  act(() => {
    set?.call(input, text);
    input.dispatchEvent(new Event('input', { bubbles: true }));
  });
}

function choose(backend: string): void {
  const select = field('backend') as unknown as HTMLSelectElement;
  act(() => {
    select.value = backend;
    select.dispatchEvent(new Event('change', { bubbles: true }));
  });
}

async function show(options: Record<string, unknown> = {}, name = 'mine'): Promise<void> {
  act(() =>
    root.render(
      <ClusterForm
        backends={[WITH_FORM, RAY, NOWHERE]}
        name={name}
        data={{ backend: 'local', options }}
        oldName={null}
        trans={trans}
        ask={(backend, given) => model.meaning(backend, given)}
        onSave={async (saved, data, test) => {
          await model.save(saved, data, null);
          done(test);
        }}
        mayDiscard={async () => discards.push(discarding) > 0 && discarding}
        onCancel={() => done('cancelled')}
        onInstall={cell => done(cell)}
      />
    )
  );
  await wait(0);
}

describe('ClusterForm', () => {
  it('warns when the backend has nothing to run on, and shows examples in its fields', async () => {
    await show();
    expect(box.textContent).not.toContain('No kubeconfig was found.');
    choose('kubernetes');
    expect(box.querySelector('[role=note]')?.textContent).toBe('No kubeconfig was found.');
    expect(field('hosts')?.placeholder).toBe('node1:4,node2:4');
    type(field('gpus_per_worker'), '1');
    expect(box.querySelector('[role=note]')).toBeNull();
    type(field('gpus_per_worker'), '');
    expect(box.querySelector('[role=note]')).not.toBeNull();
  });

  it('binds every label and help to its field, the few that matter first', async () => {
    await show();
    expect(labels()).toEqual(['Name', 'Backend', 'Workers', 'Environment']);
    expect(all('summary').map(one => one.textContent)).toEqual(['GPUs', 'Run']);
    act(() => all('summary')[0].click());
    await wait(0);
    expect(labels()).toContain('GPUs per worker');
    expect((all('label') as HTMLLabelElement[]).every(label => label.control !== null)).toBe(true);
    const described = field('gpus_per_worker')?.getAttribute('aria-describedby') ?? '';
    expect(document.getElementById(described)?.textContent).toBe('GPUs that each rank sees.');
  });

  it('says in a folded section how much of it is set', async () => {
    await show({ gpus_per_worker: 2 });
    expect(all('summary').map(one => one.textContent)).toEqual(['GPUs · 1 set', 'Run']);
    expect(all('details').map(one => (one as HTMLDetailsElement).open)).toEqual([false, false]);
  });

  it('finds fields by name, flag and help, and leaves the search before the form', async () => {
    await show();
    const search = box.querySelector('[type=search]');
    for (const [words, found] of [
      ['rank SEES', ['GPUs per worker']],
      ['--np', ['Workers']],
      ['cold start', ['Cold start']],
      ['nonsense', []]
    ] as const) {
      type(search, words);
      expect(labels().slice(2)).toEqual(found);
    }
    expect(box.textContent).toContain('No option matches “nonsense”.');
    const escape = () =>
      act(() => {
        search?.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
      });
    escape();
    expect(labels()).toHaveLength(4);
    expect(done).not.toHaveBeenCalled();
    escape();
    expect(done).toHaveBeenCalledWith('cancelled');
    expect(discards).toEqual([]);
    expect(fits(formFields(WITH_FORM)[1], 'envi')).toBe(true);
  });

  it('asks before Escape throws away what was typed', async () => {
    await show();
    const escape = (isComposing = false) =>
      act(async () => {
        const event = { key: 'Escape', bubbles: true, isComposing };
        field('name')?.dispatchEvent(new KeyboardEvent('keydown', event));
      });
    type(field('name'), 'typed');
    // An input method takes its own Escape.
    await escape(true);
    expect(discards).toEqual([]);
    await escape();
    expect(discards).toEqual([false]);
    expect(done).not.toHaveBeenCalled();
    expect(field('name')?.value).toBe('typed');
    discarding = true;
    await escape();
    expect(done).toHaveBeenCalledWith('cancelled');
  });

  it('shows live what it means, and asks once for many keys', async () => {
    await show();
    expect(line()).toBe('%%distribute --backend local');
    const before = server.asked.length;
    for (const text of ['1', '12', '128']) {
      type(field('np'), text);
      await wait(100);
    }
    // The line of a moment ago stays, dimmed, and cannot be copied.
    expect(line()).toBe('%%distribute --backend local');
    expect(box.querySelector('.jpd-sb-meaning')?.hasAttribute('data-old')).toBe(true);
    expect(box.querySelector<HTMLButtonElement>('[aria-label="Copy the line"]')?.disabled).toBe(
      true
    );
    await wait(250);
    expect(line()).toBe('%%distribute --backend local --np 128');
    expect(box.querySelector('.jpd-sb-meaning')?.hasAttribute('data-old')).toBe(false);
    expect(server.asked.length).toBe(before + 1);
  });

  it('says what is wrong once a field is left, and forgets it once it is right', async () => {
    await show();
    act(() => field('np')?.focus());
    type(field('np'), '0');
    await wait(300);
    expect(errorOf('np')).toBeUndefined();
    act(() => field('env')?.focus());
    expect(errorOf('np')).toContain('at least 1');
    expect(field('np')?.getAttribute('aria-invalid')).toBe('true');
    type(field('np'), '3');
    await wait(300);
    expect(errorOf('np')).toBeUndefined();
    expect(field('np')?.hasAttribute('aria-invalid')).toBe(false);
    // Half a value is no mistake again.
    type(field('np'), '0');
    await wait(300);
    expect(errorOf('np')).toBeUndefined();
  });

  it('does not save what is wrong, and leads to it', async () => {
    await show();
    type(field('np'), '0');
    await click('Save');
    expect(errorOf('np')).toContain('at least 1');
    expect(document.activeElement).toBe(field('np'));
    expect(server.saved).toEqual([]);
    type(field('np'), '3');
    await click('Save');
    expect(done.mock.calls).toEqual([[false]]);
    expect(server.saved).toEqual([
      { name: 'mine', backend: 'local', options: { np: 3 }, problem: null }
    ]);
  });

  it('opens the section in which something is wrong', async () => {
    await show();
    server.problems = [{ field: 'gpus_per_worker', text: 'there are none' }];
    await click('Save');
    expect(errorOf('gpus_per_worker')).toBe('There are none');
    expect(all('details').map(one => (one as HTMLDetailsElement).open)).toEqual([true, false]);
    expect(document.activeElement).toBe(field('gpus_per_worker'));
  });

  it('saves and tests', async () => {
    await show();
    await click('Save & test');
    expect(done.mock.calls).toEqual([[true]]);
  });

  it('puts what is said of the name at the name, and other answers beside the buttons', async () => {
    await show();
    const save = vi.spyOn(server, 'saveCluster');
    const refuse = (message: string, data = {}) =>
      save.mockRejectedValueOnce(new ApiError(message, 400, data));
    refuse("A cluster 'mine' already exists. Choose another name", { field: 'name' });
    await click('Save');
    expect(errorOf('name')).toContain('Choose another name');
    type(field('name'), 'other');
    expect(errorOf('name')).toBeUndefined();
    refuse('cannot write the clusters');
    await click('Save');
    expect(box.querySelector('form > [role=alert]')?.textContent).toBe('Cannot write the clusters');
  });

  it('says what to install where the engine is missing, and inserts the cell that does', async () => {
    await show();
    choose('ray');
    await wait(300);
    expect(box.querySelector('.jpd-sb-missing')?.textContent).toContain(
      'pip install "jupyter-dist[ray]"'
    );
    expect(button('Save').disabled).toBe(true);
    await click('Insert %pip install');
    expect(done.mock.calls).toEqual([['%pip install "jupyter-dist[ray]"']]);
    expect(server.asked.filter(asked => asked.startsWith('meaning ray'))).toEqual([]);
  });

  it('warns where secrets are typed', async () => {
    await show();
    expect(box.querySelector('#jpd-field-env-warning')?.textContent).toContain(
      'Do not type passwords'
    );
    expect(field('env')?.getAttribute('aria-describedby')).toContain('jpd-field-env-warning');
    expect(box.querySelector('#jpd-field-np-warning')).toBeNull();
  });
});
