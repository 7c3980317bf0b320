import { nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ISessionInfo } from '../../src/answers/sessions';
import { RunsModel } from '../../src/model/runs';
import { Sessions } from '../../src/sidebar/sessions';
import { FakeServer } from './fakeserver';

const trans = nullTranslator.load('');
let root: Root;
let box: HTMLElement;

beforeEach(() => {
  (globalThis as unknown as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;
  box = document.createElement('div');
  document.body.appendChild(box);
  root = createRoot(box);
});

afterEach(() => {
  act(() => root.unmount());
  box.remove();
});

function session(change: Partial<ISessionInfo> = {}): ISessionInfo {
  return {
    name: 'main',
    backend: 'local',
    world_size: 2,
    host: 'here',
    here: true,
    notebook: 'train.ipynb',
    created: 0,
    idle_since: 1000,
    idle_timeout_s: 86_400,
    run: null,
    queued: 0,
    ranks: [
      { rank: 0, pid: 7, state: 'running', memory_bytes: 2e9, gpu_memory_bytes: 3e9 },
      { rank: 1, pid: 8, state: 'failed', memory_bytes: null, gpu_memory_bytes: null }
    ],
    names: { model: 'Net', x: 'Tensor 4×5 float32' },
    host_time: 1065,
    ...change
  };
}

describe('the sessions', () => {
  const did = vi.fn();

  function show(sessions: ISessionInfo[], notebook = true): void {
    did.mockReset();
    act(() =>
      root.render(
        <Sessions
          sessions={sessions}
          trans={trans}
          onInsert={notebook ? name => did('insert', name) : null}
          onRestart={name => did('restart', name)}
          onStop={name => did('stop', name)}
        />
      )
    );
  }

  const press = (label: string) =>
    act(() => box.querySelector<HTMLElement>(`[aria-label="${label}"]`)?.click());

  it('take no room where there are none', () => {
    show([]);
    expect(box.innerHTML).toBe('');
  });

  it('say what each one is, what its ranks take and what they hold', () => {
    show([session()]);
    expect(box.querySelector('summary')?.textContent).toBe(
      'main 2 ranks on local · idle 1:05 · 2.00 GB'
    );
    const [ranks, names] = [...box.querySelectorAll('table')].map(table =>
      [...table.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent))
    );
    expect(ranks).toEqual([
      ['rank 0', 'pid 7 · 2.00 GB · GPU memory 3.00 GB'],
      ['rank 1', 'ended; the next cell starts the rank again · pid 8']
    ]);
    expect(names).toEqual([
      ['model', 'Net'],
      ['x', 'Tensor 4×5 float32']
    ]);
  });

  it('say that a cell runs, that others wait, and when the session will end', () => {
    show([session({ idle_since: null, queued: 2 })]);
    expect(box.querySelector('summary')?.textContent).toBe(
      'main 2 ranks on local · runs a cell · 2 cells wait · 2.00 GB'
    );
    show([session({ idle_timeout_s: 120 })]);
    expect(box.querySelector('.jpd-sb-card-problem')?.textContent).toBe(
      'Ends in 55 s if no cell uses it'
    );
  });

  it('are used by buttons; those of another machine only shown', () => {
    show([session()]);
    press('Insert a cell for the session main');
    press('Restart the ranks of main');
    press('Stop the session main');
    expect(did.mock.calls).toEqual([
      ['insert', 'main'],
      ['restart', 'main'],
      ['stop', 'main']
    ]);
    show([session()], false);
    press('Insert a cell for the session main');
    expect(did).not.toHaveBeenCalled();
    show([session({ here: false, host: 'far' })]);
    expect(box.querySelectorAll('button').length).toBe(0);
    expect(box.querySelector('summary')?.textContent).toContain('far');
  });

  it('come with the list of runs, and are read again after a change', async () => {
    const server = new FakeServer();
    server.sessions = [session()];
    const model = new RunsModel({ server, lists: server.lists, trans });
    model.active = true;
    await model.refresh();
    expect(model.sessions.map(one => one.name)).toEqual(['main']);
    await model.changeSession('main', 'restart');
    await model.changeSession('main', 'close');
    expect(server.asked.filter(one => /^(restart|close)/.test(one))).toEqual([
      'restart main',
      'close main'
    ]);
    expect(model.sessions).toEqual([]);
    model.dispose();
  });
});
