import { afterEach, describe, expect, it, vi } from 'vitest';
import type { IStepsOfRank } from '../../src/run/source';
import { RunView } from '../../src/run/view';
import { FakeSource, runInfo } from './fakesource';

let view: RunView | null = null;

afterEach(() => {
  view?.dispose();
  view = null;
});

function steps(rank: number, more: Partial<IStepsOfRank>): IStepsOfRank {
  return {
    rank,
    place: null,
    steps: 40,
    step_s: 0.05,
    data_s: 0.001,
    compute_s: 0.004,
    collectives_s: 0.045,
    samples_per_s: 160,
    gc: 1,
    gc_s: 0.01,
    ...more
  };
}

async function show(source: FakeSource): Promise<HTMLElement> {
  view = new RunView({ source });
  document.body.appendChild(view.node);
  const found = view.node.querySelector('.jpd-steps') as HTMLElement;
  await vi.waitFor(() => expect(source.asked).toContain('profile'));
  return found;
}

describe('the parts of a step', () => {
  it('are a bar for each rank, below the sentence that names the straggler', async () => {
    const told = 'Rank 1 is slow: it needs 48 ms a step.';
    const source = new FakeSource(runInfo(2, 'running', { notes: [told] }));
    const slow = steps(1, { data_s: 0.04, compute_s: 0.005, collectives_s: 0.005 });
    source.stepsTold = { ...source.stepsTold, ranks: [steps(0, {}), slow], straggler: 1 };
    const node = await show(source);
    await vi.waitFor(() => expect(node.hidden).toBe(false));
    expect(node.querySelector('summary')?.textContent).toBe('Time of a step 320 samples/s');
    const rows = [...node.querySelectorAll('.jpd-progress-row')];
    expect(rows.map(row => row.hasAttribute('data-slow'))).toEqual([false, true]);
    expect(rows[1].querySelector('.jpd-muted')?.textContent).toBe(
      '50 ms · waiting for data 80 % · computing 10 % · waiting in collectives 10 %'
    );
    const widths = [...rows[1].querySelectorAll<HTMLElement>('[data-part]')].map(
      part => `${part.dataset.part} ${part.style.width}`
    );
    expect(widths).toEqual(['data 80%', 'compute 10%', 'collectives 10%']);
    const notices = node.parentElement?.querySelector('.jpd-notices') as HTMLElement;
    expect(notices.textContent).toContain(told);
    expect(notices.nextElementSibling).toBe(node);
  });

  it('name the places of many ranks, leave out what nobody recorded, and follow the run', async () => {
    const source = new FakeSource(runInfo(64));
    const node = await show(source);
    expect(node.hidden).toBe(true);
    const unknown = { data_s: null, collectives_s: null, samples_per_s: null };
    source.stepsTold = {
      ...source.stepsTold,
      missing: ['data', 'collectives'],
      ranks: [
        steps(9, { ...unknown, place: 'slowest', step_s: 2.5, compute_s: 2.5 }),
        steps(3, { ...unknown, place: 'median', step_s: 0.5, compute_s: 0.5 })
      ]
    };
    source.tell({ kind: 'curves', id: source.id });
    await vi.waitFor(() => expect(node.hidden).toBe(false), 3000);
    expect([...node.querySelectorAll('.jpd-progress-row')].map(row => row.textContent)).toEqual([
      '9slowest · 2.5 s · computing 100 %',
      '3median · 0.5 s · computing 100 %'
    ]);
    expect(node.querySelector<HTMLElement>('.jpd-progress-row:last-child i')?.style.width).toBe(
      '20%'
    );
    expect(node.querySelector('summary')?.textContent).toBe('Time of a step ');
  });

  it('have their places with the first curves, and keep those of ranks that have not measured yet', async () => {
    const source = new FakeSource(runInfo(2));
    source.curveList = [{ name: 'loss', band: null, ranks: [] }];
    const node = await show(source);
    await vi.waitFor(() => expect(node.hidden).toBe(false));
    expect(node.querySelector('summary')?.textContent).toBe('Time of a step not yet measured');
    expect(node.querySelectorAll('.jpd-progress-row').length).toBe(2);
    source.stepsTold = { ...source.stepsTold, ranks: [steps(1, {})] };
    source.tell({ kind: 'curves', id: source.id });
    await vi.waitFor(() => expect(node.textContent).toContain('50 ms'), 3000);
    expect(node.querySelectorAll('.jpd-progress-row').length).toBe(2);
    // Nothing was measured in this attempt: nobody waits for it after the end.
    source.stepsTold = { ...source.stepsTold, ranks: [] };
    source.tell({ kind: 'run', run: runInfo(2, 'succeeded') });
    source.tell({ kind: 'curves', id: source.id });
    await vi.waitFor(() => expect(node.hidden).toBe(true), 3000);
  });

  it('have no places in a run that has measured none for long', async () => {
    const source = new FakeSource(runInfo(2, 'running', { host_time: 1100 }));
    source.curveList = [{ name: 'loss', band: null, ranks: [] }];
    const node = await show(source);
    const metrics = node.parentElement?.querySelector<HTMLElement>('.jpd-metrics');
    await vi.waitFor(() => expect(metrics?.hidden).toBe(false));
    expect(node.hidden).toBe(true);
  });
});
