/** The metrics. */
import { describe, expect, it, vi } from 'vitest';
import type { ICurve } from '../../../src/run/source';
import { FakeSource, runInfo } from '../fakesource';
import { all, byName, press, show, text, withPage } from './page';
import { plots } from './plots';

vi.mock('uplot', async () => ({ default: (await import('./plots')).FakePlot }));

withPage();

describe('the metrics', () => {
  const curve = (ranks: number) => ({
    name: 'loss',
    band: null,
    ranks: Array.from({ length: ranks }, (_, rank) => ({
      rank,
      steps: [0, 1],
      values: [2, 1],
      times: [0, 1]
    }))
  });

  it('show a rank alone, and others beside it', async () => {
    const source = new FakeSource(runInfo(3));
    source.curveList = [curve(3)];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    expect(text(node, '.jpd-chart-name')).toBe('loss');
    const chips = () => all(node, '.jpd-rank-toggles button');
    const pressed = () => chips().map(one => one.getAttribute('aria-pressed') === 'true');
    const lines = () => (plots.data.at(-1) as unknown[]).length - 1;
    chips()[1].click();
    expect([pressed(), lines()]).toEqual([[false, true, false], 1]);
    chips()[1].click();
    expect([pressed(), lines()]).toEqual([[true, true, true], 3]);
    chips()[1].dispatchEvent(new MouseEvent('click', { shiftKey: true }));
    expect([pressed(), lines()]).toEqual([[true, false, true], 2]);
    // A rank that joins does not bring back those that were switched off.
    source.tell({ kind: 'run', run: runInfo(4) });
    expect(pressed()).toEqual([true, false, true, true]);
  });

  it('of a rank, and its log, are shown wherever the rank is selected', async () => {
    const source = new FakeSource(runInfo(3));
    source.curveList = [curve(3)];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const pressed = (box: string) =>
      all(node, `${box} button[aria-pressed=true]`).map(one => one.textContent);
    const state = () => [
      pressed('.jpd-chips'),
      pressed('.jpd-rank-toggles'),
      text(node, '[role=tab][aria-selected=true]')
    ];
    const [chips, lines, tabs] = ['.jpd-chips', '.jpd-rank-toggles', '.jpd-tabs'].map(box =>
      all(node, `${box} button`)
    );
    expect(state()).toEqual([[], ['0', '1', '2'], 'All']);
    lines[1].click();
    expect(state()).toEqual([['1'], ['1'], '1']);
    chips[2].dispatchEvent(new MouseEvent('click', { shiftKey: true, bubbles: true }));
    expect(state()).toEqual([['1', '2'], ['1', '2'], 'All']);
    tabs[1].click();
    expect(state()).toEqual([['0'], ['0'], '0']);
    chips[0].click();
    expect(state()).toEqual([[], ['0', '1', '2'], 'All']);
  });

  it('appear in one frame with the bars of the ranks, which wait for them', async () => {
    const bar = { rank: 0, id: 1, n: 1, total: 2, desc: 'epoch', rate: null };
    const source = new FakeSource(runInfo(2, 'running', { progress_by_rank: [bar] }));
    const node = await show(source);
    const bars = node.querySelector('[aria-label="Progress of each rank"]')?.closest('details');
    const metrics = node.querySelector<HTMLElement>('.jpd-metrics');
    expect([bars?.hidden, metrics?.hidden]).toEqual([true, true]);
    source.curveList = [curve(2)];
    source.tell({ kind: 'curves', id: source.id });
    await vi.waitFor(() => expect(metrics?.hidden).toBe(false));
    expect(bars?.hidden).toBe(false);
  });

  it('of one point need no plot when the run has ended', async () => {
    const source = new FakeSource(runInfo(1));
    const point = { rank: 0, steps: [3], values: [2], times: [0] };
    source.curveList = [curve(1), { name: 'score', band: null, ranks: [point] }];
    const node = await show(source);
    const single = () => all(node, '.jpd-chart-single .jpd-chart-name').map(one => one.textContent);
    await vi.waitFor(() => expect(plots.alive).toBe(2));
    expect(single()).toEqual([]);
    source.tell({ kind: 'run', run: runInfo(1, 'succeeded') });
    await vi.waitFor(() => expect(single()).toEqual(['score']));
  });

  it('are a mean and a band of more than four ranks, with the lines of those that are chosen', async () => {
    const source = new FakeSource(runInfo(8));
    const parts = {
      ...{ steps: [0, 1], mean: [2, 1], min: [1, 0], max: [3, 2] },
      ...{ times: [], whole: 2, ranks: [] }
    };
    source.curveList = [{ ...curve(8), band: parts }];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const lines = () => (plots.data.at(-1) as unknown[]).length - 1;
    const [band, , , third] = all(node, '.jpd-rank-toggles button');
    // The mean has a second line for what only some ranks have reached.
    expect([band.getAttribute('aria-pressed'), lines()]).toEqual(['true', 4]);
    third.click();
    expect(lines()).toBe(5);
    band.click();
    expect(lines()).toBe(1);
    third.click();
    expect(lines()).toBe(8);
  });

  it('have a line for each rank again when a restart leaves few ranks', async () => {
    const source = new FakeSource(runInfo(8));
    source.curveList = [curve(8)];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    source.curveList = [curve(2)];
    source.tell({ kind: 'run', run: runInfo(2, 'running', { attempt: 1 }) });
    const pressed = () =>
      all(node, '.jpd-rank-toggles button').map(one => one.getAttribute('aria-pressed'));
    await vi.waitFor(() => expect((plots.data.at(-1) as unknown[]).length - 1).toBe(2));
    expect(pressed()).toEqual(['true', 'true']);
  });

  it('go over all attempts, and say where each begins', async () => {
    const source = new FakeSource(runInfo(1));
    source.curveList = [{ ...curve(1), attempts: [{ attempt: 1, step: 6 }] }];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const label = node.querySelector('.jpd-chart-box')?.getAttribute('aria-label');
    expect(label).toMatch(/; attempt 1 from step 6$/);
  });

  it('stand in sections, are filtered by name, and one is large', async () => {
    const source = new FakeSource(runInfo(1));
    const names = ['lr', 'train', 'val', 'grad'].flatMap(part =>
      part === 'lr' ? [part] : Array.from({ length: 6 }, (_, i) => `${part}/m${i}`)
    );
    source.curveList = names.map(name => ({ ...curve(1), name }));
    const node = await show(source);
    const shown = () => all(node, '.jpd-chart-name').map(one => one.textContent);
    await vi.waitFor(() => expect(shown()).toContain('lr'));
    const heads = all(node, '.jpd-chart-section > summary').map(one => one.textContent);
    expect(heads).toEqual(['train 6', 'val 6', 'grad 6']);
    // What would be the 14th chart and more is folded, and not drawn.
    expect(shown()).toEqual(names.slice(0, 13));
    const filter = node.querySelector<HTMLInputElement>('.jpd-metric-filter') as HTMLInputElement;
    const type = (value: string) => {
      filter.value = value;
      filter.dispatchEvent(new Event('input'));
    };
    type('grad/m[12]');
    expect(all(node, '.jpd-chart-section:not([hidden]) .jpd-chart-name').length).toBe(2);
    type('grad/m[');
    expect(text(node, '.jpd-metrics > .jpd-muted:not([hidden])')).toBe('No matching metric');
    type('');
    expect(shown()).toEqual(names.slice(0, 13));
    const large = () => all(node, '.jpd-chart-large .jpd-chart-name').map(one => one.textContent);
    byName(node, 'Enlarge train/m1').click();
    byName(node, 'Enlarge val/m2').click();
    expect(large()).toEqual(['val/m2']);
    press(node.querySelector('.jpd-chart-large .jpd-chart-box') as HTMLElement, 'Escape');
    expect(large()).toEqual([]);
  });

  it('say where a value was no number', async () => {
    const source = new FakeSource(runInfo(2));
    const lossy: ICurve = curve(2);
    const special = [{ step: 1, value: 'NaN' }];
    const not_finite = { count: 1, last: special[0], since: 1 };
    lossy.ranks[1] = { ...lossy.ranks[1], values: [2, null], special, not_finite };
    source.curveList = [lossy];
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-chart-special')).toBe('NaN from step 1 [1]'));
    expect(node.querySelector('.jpd-chart-box')?.getAttribute('aria-label')).toContain('NaN');
  });

  it('are drawn in the new colours when they come into sight after the theme has changed', async () => {
    const resized: (() => void)[] = [];
    class Observer {
      constructor(callback: () => void) {
        resized.push(callback);
      }
      observe() {}
      disconnect() {}
    }
    vi.stubGlobal('ResizeObserver', Observer);
    const source = new FakeSource(runInfo(2));
    source.curveList = [curve(2)];
    document.body.dataset.jpThemeLight = 'true';
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const width = vi.spyOn(HTMLElement.prototype, 'clientWidth', 'get').mockReturnValue(0);
    const made = plots.made;
    document.body.dataset.jpThemeLight = 'false';
    await vi.waitFor(() => expect(node.dataset.jpdTheme).toBe('dark'));
    expect(plots.made).toBe(made);
    width.mockReturnValue(600);
    resized.forEach(callback => callback());
    expect(plots.made).toBe(made + 1);
    expect(plots.alive).toBe(1);
    delete document.body.dataset.jpThemeLight;
    vi.unstubAllGlobals();
  });

  it('are drawn in the new colours when the theme changes', async () => {
    const source = new FakeSource(runInfo(2));
    source.curveList = [curve(2)];
    document.body.dataset.jpThemeLight = 'true';
    const node = await show(source);
    await vi.waitFor(() => expect(plots.made).toBeGreaterThan(0));
    const made = plots.made;
    document.body.dataset.jpThemeLight = 'false';
    await vi.waitFor(() => expect(plots.made).toBeGreaterThan(made));
    expect(node.dataset.jpdTheme).toBe('dark');
    delete document.body.dataset.jpThemeLight;
  });
});

describe('metrics', () => {
  it('say why there are none of --metric', async () => {
    const source = new FakeSource(runInfo(2, 'running'));
    vi.spyOn(source, 'curves').mockResolvedValue({
      names: [],
      curves: [],
      problem: '--metric x: takes more than 10 s'
    } as never);
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-metrics')).toContain('takes more than 10 s'));
    expect(node.querySelector<HTMLElement>('.jpd-metrics')?.hidden).toBe(false);
  });
});
