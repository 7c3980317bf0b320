import { afterEach, describe, expect, it, vi } from 'vitest';
import { polyline } from '../../src/run/resources';
import { RunView } from '../../src/run/view';
import { FakeSource, runInfo } from './fakesource';

let view: RunView | null = null;

afterEach(() => {
  view?.dispose();
  view = null;
});

async function show(source: FakeSource): Promise<HTMLElement> {
  view = new RunView({ source });
  document.body.appendChild(view.node);
  const { node } = view;
  await vi.waitFor(() => expect(node.querySelector<HTMLElement>('.jpd-main')?.hidden).toBe(false));
  return node;
}

const series = (cpu: number, memory: number) => [
  { name: 'cpu', values: [50, null, cpu] },
  { name: 'memory', values: [1e9, 1e9, memory] }
];

describe('the resources', () => {
  it('are a line, and a row for each rank when they are opened', async () => {
    const source = new FakeSource(runInfo(2));
    source.usageTold = {
      attempt: 0,
      host_time: 1100,
      ranks: [
        { rank: 0, times: [1, 2, 3], series: series(100, 2e9), last_sign: 1099 },
        { rank: 1, times: [1, 2, 3], series: series(98, 1e9), last_sign: 1000 }
      ]
    };
    const node = await show(source);
    const box = node.querySelector('.jpd-resources') as HTMLDetailsElement;
    expect(box.hidden).toBe(false);
    const summary = box.querySelector('summary');
    await vi.waitFor(() =>
      expect(summary?.textContent).toBe('Resources CPU 198 % · memory 3.00 GB')
    );
    expect(source.asked.filter(one => one.startsWith('usage'))).toEqual(['usage 1']);
    box.open = true;
    box.dispatchEvent(new Event('toggle'));
    await vi.waitFor(() => expect(box.querySelectorAll('tbody tr').length).toBe(2), 3000);
    expect(source.asked).toContain('usage 120');
    const cells = [...box.querySelectorAll('tbody tr:last-child > *')].map(one => one.textContent);
    expect(cells.slice(0, 3)).toEqual(['1', '98 %', '1.00 GB']);
    expect(cells[3]).toMatch(/^last output 1:4\d ago$/);
    expect(box.querySelector('tbody tr:first-child td:last-child')?.textContent).toBe('');
    // The chip says it as well.
    node
      .querySelectorAll<HTMLElement>('.jpd-chip')[1]
      .dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
    expect(node.querySelector('.jpd-strip .jpd-tip')?.textContent).toContain('last output');
    // After the end nothing is taken: what is left to say is how much it was at most.
    source.usageTold.ranks[1].series[0].values = [50, 98, 0];
    source.tell({ kind: 'run', run: runInfo(2, 'succeeded') });
    await vi.waitFor(
      () => expect(box.querySelector('summary')?.textContent?.trim()).toBe('Resources'),
      3000
    );
    const last = [...box.querySelectorAll('tbody tr:last-child > *')].map(one => one.textContent);
    expect(last.slice(0, 3)).toEqual(['1', 'max 98 %', 'max 1.00 GB']);
  });

  it('take no room where nothing is told', async () => {
    const source = new FakeSource(runInfo(2, 'succeeded'));
    const node = await show(source);
    source.tell({ kind: 'usage', id: source.id });
    await vi.waitFor(() => expect(source.asked).toContain('usage 1'));
    expect((node.querySelector('.jpd-resources') as HTMLElement).hidden).toBe(true);
  });

  it('have their line from the start to the end of a run that is seen', async () => {
    const source = new FakeSource(runInfo(2));
    source.usageTold = { attempt: 0, host_time: 1100, ranks: [] };
    const node = await show(source);
    const box = node.querySelector('.jpd-resources') as HTMLElement;
    expect(box.hidden).toBe(false);
    expect(box.textContent?.trim()).toBe('Resources');
    source.tell({ kind: 'run', run: runInfo(2, 'succeeded') });
    await vi.waitFor(
      () => expect(box.textContent).toContain('the run ended before the first measurement'),
      3000
    );
    expect(box.hidden).toBe(false);
  });

  it('are drawn from the bottom to the top of one scale', () => {
    expect(polyline([0, null, 100], 100)).toBe('0.0,15.0 72.0,1.0');
    expect(polyline([], 1)).toBe('');
  });
});
