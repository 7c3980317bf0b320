/** What changes while the view is open: late answers, a removed run, a lost connection, the view’s end. */
import { describe, expect, it, vi } from 'vitest';
import type { IRunInfo } from '../../../src/run/source';
import { FakeSource, runInfo } from '../fakesource';
import { all, dispose, open, show, text, withPage } from './page';
import { plots } from './plots';

vi.mock('uplot', async () => ({ default: (await import('./plots')).FakePlot }));

withPage();

describe('an answer that was under way for long', () => {
  it('does not take back what was told meanwhile', async () => {
    const source = new FakeSource(runInfo(1));
    let answer: (info: IRunInfo) => void = () => undefined;
    source.run = () => new Promise(resolve => (answer = resolve));
    const node = open({ source });
    source.tell({ kind: 'run', run: runInfo(1, 'succeeded') });
    answer(runInfo(1));
    await new Promise(resolve => setTimeout(resolve));
    expect(node.dataset.state).toBe('succeeded');
  });
});

describe('a removed run', () => {
  it('is said to be removed, and stays as it was read', async () => {
    const source = new FakeSource(runInfo(2, 'succeeded'));
    source.lines = ['hello'];
    const node = await show(source);
    await vi.waitFor(() => expect(node.textContent).toContain('hello'));
    source.tell({ kind: 'gone', id: source.id });
    expect(text(node, '.jpd-notice b')).toBe('This run was removed');
    expect(node.textContent).toContain('hello');
  });
});

describe('a lost connection', () => {
  it('is over: what could not be read is read', async () => {
    const source = new FakeSource(runInfo(2, 'succeeded'));
    source.resultList = [{ ranks: [0, 1], repr: '0.5', error: null, bytes: 3 }];
    const read = vi.spyOn(source, 'results').mockRejectedValueOnce(new Error('gone'));
    const node = await show(source);
    await vi.waitFor(() => expect(read).toHaveBeenCalledOnce());
    source.tell({ kind: 'connection', online: false });
    expect(text(node, '.jpd-notice b')).toBe('No connection');
    source.tell({ kind: 'connection', online: true });
    await vi.waitFor(() => expect(text(node, '.jpd-result .jpd-ranks')).toBe('[0-1]'));
    expect(all(node, '.jpd-notice').length).toBe(0);
  });
});

describe('what is left after disposal', () => {
  it('nothing listens, nothing draws', async () => {
    const added: [EventTarget, string, AbortSignal | undefined][] = [];
    const original = EventTarget.prototype.addEventListener;
    vi.spyOn(EventTarget.prototype, 'addEventListener').mockImplementation(function (
      this: EventTarget,
      type: string,
      listener: EventListenerOrEventListenerObject | null,
      options?: boolean | AddEventListenerOptions
    ) {
      if (!(this instanceof AbortSignal)) {
        added.push([this, type, typeof options === 'object' ? options.signal : undefined]);
      }
      original.call(this, type, listener, options);
    });
    const source = new FakeSource(runInfo(8));
    source.lines = ['a'];
    source.curveList = [
      { name: 'loss', band: null, ranks: [{ rank: 0, steps: [0], values: [1], times: [0] }] }
    ];
    const node = await show(source);
    await vi.waitFor(() => expect(plots.alive).toBe(1));
    const ours = added.filter(
      ([target]) => target === document || target === window || node.contains(target as Node)
    );
    expect(ours.length).toBeGreaterThan(20);
    expect(ours.filter(([, , signal]) => !signal)).toEqual([]);
    dispose();
    expect(ours.filter(([, , signal]) => !signal?.aborted)).toEqual([]);
    expect(source.listeners.size).toBe(0);
    expect(plots.alive).toBe(0);
    expect(node.isConnected).toBe(false);
    const before: IRunInfo = source.info;
    source.tell({ kind: 'run', run: before });
  });
});
