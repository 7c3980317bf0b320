import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ILogLine, RunChange } from '../../src/run/source';
import { RunMissing } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { keptPage, keptPageAlone } from '../../src/widget/snapshots';
import type { IModel, ISnapshot } from '../../src/widget/model';
import { KernelRunSource } from '../../src/widget/source';

type Sent = { kind: string; ask?: number; method?: string; args?: Record<string, unknown> };

/** A widget's model whose kernel is the test. */
class FakeModel implements IModel {
  sent: Sent[] = [];
  snapshot: unknown = {};
  widget_manager = { get_model: () => Promise.reject(new Error('none')) };
  private readonly _callbacks = new Map<string, Set<(...args: never[]) => void>>();

  get(name: string): unknown {
    return name === 'run' ? 'r1' : name === 'snapshot' ? this.snapshot : undefined;
  }
  on(name: string, callback: (...args: never[]) => void): void {
    this._callbacks.set(name, (this._callbacks.get(name) ?? new Set()).add(callback));
  }
  off(name: string, callback: (...args: never[]) => void): void {
    this._callbacks.get(name)?.delete(callback);
  }
  send(content: unknown): void {
    this.sent.push(content as Sent);
  }
  emit(name: string, ...args: unknown[]): void {
    this._callbacks.get(name)?.forEach(callback => callback(...(args as never[])));
  }
  say(message: unknown, buffers: unknown[] = []): void {
    this.emit('msg:custom', message, buffers);
  }
  asked(method: string): Sent[] {
    return this.sent.filter(sent => sent.method === method);
  }
  get listeners(): number {
    return [...this._callbacks.values()].reduce((sum, all) => sum + all.size, 0);
  }
}

function snapshot(total: number, kept: number, changes: Partial<ISnapshot> = {}): ISnapshot {
  const lines = Array.from({ length: kept }, (_, i): ILogLine => {
    const n = total - kept + i;
    return { n, rank: n % 2, ranks: n % 5 ? [n % 2] : [0, 1], time: 0, text: `line ${n}` };
  });
  return {
    final: false,
    told: true,
    run: { id: 'r1', state: 'running', world_size: 2 } as ISnapshot['run'],
    log: { start: total - kept, total, complete: false, lines },
    totals: { '0': 60, '1': 70 },
    curves: { names: ['loss'], curves: [] },
    errors: [],
    results: [],
    ...changes
  };
}

let model: FakeModel;
let source: KernelRunSource;
let heard: RunChange[];
let refused: (string | null)[];

function open(shown: unknown = {}): void {
  model = new FakeModel();
  model.snapshot = shown;
  source = new KernelRunSource(model, english);
  heard = [];
  refused = [];
  source.watch(change => heard.push(change));
  source.onRefused = why => refused.push(why);
}

beforeEach(() => {
  vi.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance']
  });
});
afterEach(() => {
  source?.dispose();
  vi.useRealTimers();
});

describe('a kernel that answers', () => {
  it('is asked, and each answer goes to its question', async () => {
    open();
    const [run, errors] = [source.run(), source.errors()];
    const asks = model.sent.filter(sent => sent.kind === 'ask');
    expect(asks.map(sent => sent.method)).toEqual(['run', 'errors']);
    model.say({ kind: 'answer', ask: asks[1].ask, result: [] });
    model.say({ kind: 'answer', ask: asks[0].ask, result: { id: 'r1' } });
    expect(await errors).toEqual([]);
    expect(await run).toEqual({ id: 'r1' });
  });

  it('says why something fails', async () => {
    open();
    const search = source.logSearch(null, { query: '(', regex: true });
    model.say({
      kind: 'answer',
      ask: model.asked('log_search')[0].ask,
      error: 'not a regular expression'
    });
    await expect(search).rejects.toThrow('not a regular expression');
    const run = source.run();
    model.say({ kind: 'answer', ask: model.asked('run')[0].ask, error: 'gone', missing: '/runs' });
    await expect(run).rejects.toThrow(RunMissing);
  });

  it('passes on what changes', () => {
    open();
    model.say({ kind: 'changes', changes: [{ kind: 'curves', id: 'r1' }] });
    expect(heard).toEqual([{ kind: 'curves', id: 'r1' }]);
  });

  it('hears that somebody looks, until nobody does', () => {
    open();
    vi.advanceTimersByTime(25_000);
    expect(model.sent.filter(sent => sent.kind === 'watch').length).toBeGreaterThanOrEqual(3);
    source.dispose();
    expect(model.sent.at(-1)).toEqual({ kind: 'unwatch' });
    expect(model.listeners).toBe(0);
    const count = model.sent.length;
    vi.advanceTimersByTime(60_000);
    expect(model.sent.length).toBe(count);
  });

  it('repeats a question that was lost, once, and keeps its number', async () => {
    open();
    const trial = source.open('r1-t2');
    model.say({ kind: 'here' });
    vi.advanceTimersByTime(1_600);
    vi.advanceTimersByTime(9_000);
    const [first, again, ...rest] = model.asked('open');
    expect(again).toEqual(first);
    expect(rest).toEqual([]);
    model.say({ kind: 'answer', ask: first.ask, result: 'model' });
    expect(await trial).toBe('model');
  });

  it('is waited for by whoever asks before it was heard', async () => {
    open(snapshot(100, 20, { told: false, final: true }));
    const trial = source.open('r1-t2');
    await vi.advanceTimersByTimeAsync(2_900);
    expect(model.asked('open')).toEqual([]);
    model.say({ kind: 'here' });
    await vi.advanceTimersByTimeAsync(0);
    const [asked] = model.asked('open');
    model.say({ kind: 'answer', ask: asked.ask, result: 'model' });
    expect(await trial).toBe('model');
    expect(refused.filter(Boolean)).toEqual([]);
  });

  it('takes no answer to another view of the same widget', () => {
    open();
    const numbers = new Set(
      [1, 2, 3, 4].map(() => {
        const other = new KernelRunSource(model, english);
        other.run().catch(() => undefined); // it is disposed of
        other.dispose();
        return model.asked('run').at(-1)?.ask;
      })
    );
    expect(numbers.size).toBe(4);
  });

  it('is lost when it says nothing, and found again', () => {
    open();
    model.say({ kind: 'here' });
    vi.advanceTimersByTime(13_100);
    expect(heard).toEqual([{ kind: 'connection', online: false }]);
    model.say({ kind: 'here' });
    expect(heard.at(-1)).toEqual({ kind: 'connection', online: true });
  });
});

describe('a kernel that is gone', () => {
  it('leaves displays between the lines that are kept, and the last of what was logged', async () => {
    const place = (rank: number, line: number, row: number) => ({
      ...{ rank, line, row, lines: 1, rows: 1 }
    });
    const display = {
      ...{ key: '1/0', line: 1, result: false, more_ranks: 0, exhibits: [] },
      places: [place(0, 58, 95), place(0, 2, 7)]
    };
    const page = { name: 'notes', start: 0, total: 1, steps: [] };
    const kept = { list: { attempt: 0, version: 1, series: [] }, pages: [page] };
    open(
      snapshot(100, 20, {
        told: false,
        final: true,
        displays: { attempt: 0, version: 1, start: 0, total: 1, displays: [display] },
        media: kept
      })
    );
    const own = (await source.logPage(0, 0, 200)).lines.length;
    const [shown] = (await source.displays()).displays;
    expect(shown.places).toEqual([place(0, 58 - (60 - own), 95 - 80)]);
    expect(await source.media()).toEqual(kept.list);
    expect(await source.mediaPage('notes', 0, 1)).toEqual(page);
  });
});

describe('a kernel that cannot be heard', () => {
  it('is not asked for what it told', async () => {
    open(snapshot(100, 20));
    expect((await source.run()).state).toBe('running');
    expect((await source.curves(2000)).names).toEqual(['loss']);
    expect((await source.profile()).ranks).toEqual([]); // as in notebooks that were saved without it
    const page = await source.logPage(null, -200, 200);
    expect([page.start, page.total, page.lines.length]).toEqual([80, 100, 20]);
    expect(model.asked('log_page')).toEqual([]);
  });

  it('cannot stop the run, and says how to', async () => {
    open(snapshot(100, 20));
    await expect(source.stop(false)).rejects.toThrow('use Interrupt');
    expect(refused.at(-1)).toContain('use Interrupt');
    await expect(source.logSearch(null, { query: 'x' })).rejects.toThrow('when the cell has ended');
    expect(model.asked('stop')).toEqual([]);
  });

  it('is asked for older lines as soon as it hears', async () => {
    open(snapshot(1000, 100));
    const page = source.logPage(null, 0, 200);
    expect(model.asked('log_page')).toEqual([]);
    model.say({ kind: 'here' });
    const [ask] = model.asked('log_page');
    expect(ask.args).toEqual({ rank: null, start: 0, count: 200 });
    model.say({ kind: 'answer', ask: ask.ask, result: { start: 0 } });
    expect(await page).toEqual({ start: 0 });
    expect(heard).toContainEqual({ kind: 'connection', online: true });
    expect(refused.at(-1)).toBeNull();
  });

  it('is waited for again when its cell has ended', async () => {
    open(snapshot(10, 10));
    await vi.advanceTimersByTimeAsync(3_100);
    model.snapshot = snapshot(12, 12, { told: false, final: true });
    model.emit('change:snapshot');
    const opened = source.open('r1-t2');
    await vi.advanceTimersByTimeAsync(100);
    model.say({ kind: 'here' });
    await vi.advanceTimersByTimeAsync(0);
    const [{ ask }] = model.asked('open');
    model.say({ kind: 'answer', ask, result: 'm2' });
    expect(await opened).toBe('m2');
    expect(refused.filter(Boolean)).toEqual([]);
  });

  it('tells anew what has changed', () => {
    open(snapshot(10, 10));
    model.snapshot = snapshot(12, 12);
    model.emit('change:snapshot');
    expect(heard.map(change => change.kind)).toEqual(['run', 'log', 'curves']);
    expect(heard[1]).toMatchObject({ all: 12, ranks: { '0': 60, '1': 70 } });
  });

  it('falls silent in the middle: what is kept answers then', async () => {
    open();
    model.say({ kind: 'here' });
    model.snapshot = snapshot(100, 20, { told: false, final: true });
    model.emit('change:snapshot');
    const page = source.logPage(null, -5, 5);
    expect(model.asked('log_page')).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(3_100);
    expect((await page).lines.map(line => line.text)).toEqual(
      [95, 96, 97, 98, 99].map(n => `line ${n}`)
    );
  });
});

describe('no kernel', () => {
  it('leaves the end of the log, and says so', async () => {
    open(snapshot(1000, 200, { told: false, final: true }));
    vi.advanceTimersByTime(3_100);
    expect(refused).toEqual([
      'The kernel of this run is not connected. The log shows the last 200 of 1,000 lines.'
    ]);
    const page = await source.logPage(null, 0, 200);
    expect([page.start, page.total, page.lines[0].text]).toEqual([0, 200, 'line 800']);
    await expect(source.stop(false)).rejects.toThrow('The kernel is not connected');
  });

  it('opens no trial, and says so when the kernel has been silent for a while', async () => {
    open(snapshot(1000, 200, { told: false, final: true }));
    const failed = expect(source.open('r1-t2')).rejects.toThrow('without its kernel');
    await vi.advanceTimersByTimeAsync(2_900);
    expect(refused).toEqual([]);
    await vi.advanceTimersByTimeAsync(200);
    await failed;
    expect(refused).toContain('A trial cannot be opened without its kernel.');
  });

  it('and nothing saved: says that nobody answers', async () => {
    open();
    const run = source.run();
    const failed = expect(run).rejects.toThrow('does not answer');
    await vi.advanceTimersByTimeAsync(3_100);
    await failed;
    expect(heard).toEqual([{ kind: 'connection', online: false }]);
  });
});

describe('a download', () => {
  it('comes piece by piece', async () => {
    open();
    const blobs: Blob[] = [];
    URL.createObjectURL = blob => (blobs.push(blob as Blob), 'blob:x');
    URL.revokeObjectURL = () => {};
    const done = source.download(1);
    for (const piece of ['one\n', 'two\n', null]) {
      const { ask } = model.asked('download').at(-1)!;
      model.say({ kind: 'answer', ask, result: 1 }, piece ? [new TextEncoder().encode(piece)] : []);
      await Promise.resolve();
      await Promise.resolve();
      await Promise.resolve();
    }
    await done;
    expect(blobs[0].size).toBe(8);
    expect(new Set(model.asked('download').map(sent => sent.args?.key)).size).toBe(1);
  });
});

describe('kept lines', () => {
  it('end with those that are not finished, of each rank its own', () => {
    const kept = snapshot(100, 20);
    kept.log.partial = [0, 0, 1].map((rank, n) => ({ rank, time: 0, text: `bar ${n}` }));
    const texts = (rank: number | null) =>
      keptPage(kept, rank, -3, 3)?.partial?.map(line => line.text);
    expect([texts(null), texts(0), texts(1)]).toEqual([
      ['bar 0', 'bar 1', 'bar 2'],
      ['bar 0', 'bar 1'],
      ['bar 2']
    ]);
  });

  it('of one rank are its last ones, by its own numbers', () => {
    const page = keptPage(snapshot(100, 20), 0, -3, 3)!;
    expect(page.total).toBe(60);
    expect(page.lines.map(line => [line.n, line.text])).toEqual([
      [57, 'line 95'],
      [58, 'line 96'],
      [59, 'line 98']
    ]);
  });

  it('are none where none are known, which is not an empty log', () => {
    expect(keptPage(snapshot(100, 20), null, 0, 10)).toBeNull();
    expect(keptPage(snapshot(100, 20), null, 75, 10)).toBeNull();
    expect(keptPage(snapshot(0, 0), null, -10, 10)).toMatchObject({ total: 0, lines: [] });
  });

  it('alone are a log of their own', () => {
    const page = keptPageAlone(snapshot(100, 20), null, 15, 100);
    expect([page.start, page.total, page.lines.length]).toEqual([15, 20, 5]);
  });
});
