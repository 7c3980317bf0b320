import { ServerConnection } from '@jupyterlab/services';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LastOutputs, RUN_MIME } from '../../src/model/lastoutputs';
import type { ISavedOutput } from '../../src/answers/runs';
import { ServerRunSource } from '../../src/api';
import { watcher } from '../../src/watcher';
import { FakeSource, runInfo } from './fakesource';
import { open, withPage } from './view/page';

vi.mock('uplot', () => ({ default: class {} }));

class FakeSocket {
  static last: FakeSocket;
  readyState = 1;
  sent: string[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;
  constructor() {
    FakeSocket.last = this;
  }
  tell(...changes: unknown[]): void {
    this.onmessage?.({ data: JSON.stringify(changes) });
  }
  send(data: string): void {
    this.sent.push(data);
  }
  close(): void {
    this.readyState = 3;
  }
}

function site() {
  const fetch = vi.fn(async () => new Response('{"id": "asked"}'));
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://host/',
    fetch: fetch as unknown as typeof globalThis.fetch,
    WebSocket: FakeSocket as unknown as typeof WebSocket
  });
  return { fetch, settings };
}

afterEach(() => void vi.useRealTimers());
withPage();

describe('a run that begins', () => {
  it('draws the lines that come unasked, and asks for the rest after them', async () => {
    vi.useFakeTimers();
    const source = new FakeSource(runInfo(2));
    source.live = true;
    const node = open({ source });
    await vi.advanceTimersByTimeAsync(100);
    expect(node.dataset.state).toBe('running');
    expect(source.asked).toEqual([]);
    source.lines = ['first'];
    const page = await source.logPage(null, 0, 9);
    source.asked.length = 0;
    // Other parts of the page listen to the run as well: without lines.
    const news = { kind: 'log', id: 'r-1', ranks: { '0': 1 }, all: 1 } as const;
    source.tell(news);
    expect(source.asked).toEqual([]);
    source.tell({ ...news, tails: [{ rank: null, launcher: null, page }] });
    expect(source.asked).toEqual([]);
    await vi.advanceTimersByTimeAsync(100);
    expect(node.querySelector('.jpd-row')?.textContent).toContain('first');
    expect(source.asked.map(one => one.split(' ')[0]).sort()).toEqual(['profile', 'usage']);
  });

  it('asks for lines that do not come', async () => {
    const source = new FakeSource(runInfo(2));
    source.live = true;
    source.lines = ['first'];
    open({ source });
    await vi.waitFor(() => expect(source.asked).toContain('all -200 200'));
  });

  it('is not asked for how it stands, if the server tells it unasked', async () => {
    const { settings, fetch } = site();
    const watching = watcher(settings).watch('r-1', () => undefined);
    const source = new ServerRunSource('r-1', settings);
    const told = source.run();
    const clock = vi.spyOn(performance, 'now').mockReturnValue(1000);
    FakeSocket.last.tell({ kind: 'curves', id: 'r-1' }, { kind: 'run', run: runInfo(2) });
    expect((await told).state).toBe('running');
    // Whoever asks later gets the same, with the host's clock as it is by then.
    clock.mockReturnValue(3000);
    expect((await source.run()).host_time).toBeCloseTo(runInfo(2).host_time + 2, 1);
    expect(fetch).not.toHaveBeenCalled();
    FakeSocket.last.tell({ kind: 'gone', id: 'r-1' });
    const again = source.run();
    FakeSocket.last.tell({ kind: 'gone', id: 'r-1' });
    expect(await again).toEqual({ id: 'asked' });
    watching.dispose();
  });

  it('has its first lines come once to a page', () => {
    const { settings } = site();
    const page = watcher(settings);
    const watching = page.watch('r-1', () => undefined);
    const first = page.followLog('r-1', null);
    const second = page.followLog('r-1', null);
    const other = page.followLog('r-1', 1);
    expect([first.live, second.live, other.live]).toEqual([true, false, true]);
    FakeSocket.last.readyState = 3;
    expect(page.followLog('r-1', 2).live).toBe(false);
    watching.dispose();
  });

  it('has the end that its kernel has written, and nobody is asked for it', async () => {
    vi.useFakeTimers();
    const saved = vi.fn(
      async () => ({ ended: true, html: '', text: '', id: 'r-1' }) as ISavedOutput
    );
    const outputs = new LastOutputs({ saved, watch: () => ({ dispose: () => undefined }) });
    const output = () => ({
      data: { [RUN_MIME]: { run: 'r-1', ended: false } },
      setData: vi.fn()
    });
    const [written, left] = [output(), output()];
    outputs.take(written);
    expect(saved).not.toHaveBeenCalled();
    written.data[RUN_MIME].ended = true;
    await vi.advanceTimersByTimeAsync(3500);
    expect(saved).not.toHaveBeenCalled();
    outputs.take(left);
    await vi.advanceTimersByTimeAsync(3500);
    expect(left.setData).toHaveBeenCalledOnce();
    outputs.dispose();
  });
});
