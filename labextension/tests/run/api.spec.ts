import { ServerConnection } from '@jupyterlab/services';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ServerRunSource, request } from '../../src/api';
import { RunMissing, type RunChange } from '../../src/run/source';
import { Watcher } from '../../src/watcher';

class FakeSocket {
  static all: FakeSocket[] = [];
  readyState = 0;
  sent: string[] = [];
  closed = false;
  onopen: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;
  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }
  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }
  lose(): void {
    this.readyState = 3;
    this.onclose?.();
  }
  send(data: string): void {
    this.sent.push(data);
  }
  close(): void {
    this.closed = true;
    this.lose();
  }
}

function settings(answer: () => Response = () => new Response('{}')) {
  const fetch = vi.fn<(request: Request) => Promise<Response>>(async () => answer());
  return {
    fetch,
    settings: ServerConnection.makeSettings({
      baseUrl: 'http://host/user/me/',
      wsUrl: 'ws://host/user/me/',
      token: 'secret',
      appendToken: true,
      fetch: fetch as unknown as typeof globalThis.fetch,
      WebSocket: FakeSocket as unknown as typeof WebSocket
    })
  };
}

afterEach(() => {
  FakeSocket.all = [];
  vi.useRealTimers();
});

describe('requests', () => {
  it('asks once more where a connection broke, and never sends twice', async () => {
    const { fetch, settings: site } = settings();
    fetch.mockRejectedValueOnce(new TypeError('Failed to fetch'));
    expect(await request(site, 'runs')).toEqual({});
    expect(fetch).toHaveBeenCalledTimes(2);
    fetch.mockRejectedValueOnce(new TypeError('Failed to fetch'));
    await expect(request(site, 'runs/a/stop', { method: 'POST' })).rejects.toThrow(
      'Failed to fetch'
    );
    expect(fetch).toHaveBeenCalledTimes(3);
  });

  it('go below the base URL, with what is known in the query', async () => {
    const { settings: server, fetch } = settings();
    await new ServerRunSource('a/../b', server).logPage(null, -200, 200);
    expect(fetch.mock.calls[0][0].url).toMatch(
      /^http:\/\/host\/user\/me\/jupyter-dist\/api\/runs\/a%2F\.\.%2Fb\/log\?start=-200&count=200/
    );
  });

  it('name an earlier attempt where one is meant', async () => {
    const { settings: server, fetch } = settings(() => new Response('[]'));
    const source = new ServerRunSource('id', server);
    await source.logPage(1, 0, 9, 0);
    await source.logSearch(null, { query: 'x', attempt: 2 });
    await source.errors(1);
    await source.errors();
    const asked = fetch.mock.calls.map(([{ url }]) => url.replace(/.*runs\/id/, ''));
    expect(asked.map(url => url.replace(/[?&]\d+$/, ''))).toEqual([
      '/log?rank=1&attempt=0&start=0&count=9',
      '/log/search?query=x&attempt=2',
      '/errors?attempt=1',
      '/errors'
    ]);
  });

  it('carry what a cookie login asks of a link', async () => {
    document.cookie = '_xsrf=2|abc';
    const links: string[] = [];
    const click = vi.spyOn(HTMLAnchorElement.prototype, 'click').mockImplementation(function (
      this: HTMLAnchorElement
    ) {
      links.push(this.href);
    });
    const source = new ServerRunSource('id', settings().settings);
    await source.download(3);
    await source.download('launcher-h1', 0);
    await source.downloadFile('a b.json');
    click.mockRestore();
    document.cookie = '_xsrf=; max-age=0';
    expect(links).toEqual([
      'http://host/user/me/jupyter-dist/api/runs/id/log/download?rank=3&token=secret&_xsrf=2%7Cabc',
      'http://host/user/me/jupyter-dist/api/runs/id/log/download?launcher=launcher-h1&attempt=0&token=secret&_xsrf=2%7Cabc',
      'http://host/user/me/jupyter-dist/api/runs/id/files/download?file=a+b.json&token=secret&_xsrf=2%7Cabc'
    ]);
  });

  it('fail with the server’s own words', async () => {
    const { settings: server } = settings(
      () => new Response('{"message": "it has ended"}', { status: 409 })
    );
    await expect(request(server, 'x')).rejects.toThrow('it has ended');
  });

  it('fail readably where a proxy answers', async () => {
    const { settings: server } = settings(
      () => new Response('<html>', { status: 502, statusText: 'Bad Gateway' })
    );
    await expect(request(server, 'x')).rejects.toThrow('502 Bad Gateway');
  });

  it('tell a missing run from other failures', async () => {
    const { settings: server } = settings(
      () => new Response('{"message": "no run", "root": "/runs"}', { status: 404 })
    );
    const failed = new ServerRunSource('r', server).run();
    await expect(failed).rejects.toBeInstanceOf(RunMissing);
    await expect(failed).rejects.toMatchObject({ root: '/runs' });
  });
});

describe('the watcher', () => {
  /** What is asked for in one go is sent as one message. */
  const sent = () => Promise.resolve();

  it('has one socket for all, and subscribes to what is listened to', async () => {
    const watcher = new Watcher(settings().settings);
    const heard: RunChange[] = [];
    const a = watcher.watch('a', change => heard.push(change));
    const b = watcher.watch('runs', change => heard.push(change));
    expect(FakeSocket.all.length).toBe(1);
    const [socket] = FakeSocket.all;
    expect(socket.url).toBe('ws://host/user/me/jupyter-dist/api/watch?token=secret');
    socket.open();
    await sent();
    expect(socket.sent.at(-1)).toBe('{"watch":["a","runs"],"tails":[]}');
    socket.onmessage?.({ data: '[{"kind":"curves","id":"a"},{"kind":"curves","id":"other"}]' });
    expect(heard).toEqual([{ kind: 'curves', id: 'a' }]);
    a.dispose();
    await sent();
    expect(socket.sent.at(-1)).toBe('{"watch":["runs"],"tails":[]}');
    b.dispose();
    b.dispose();
    expect(socket.closed).toBe(true);
  });

  it('connects again after a message that is no JSON', () => {
    const watcher = new Watcher(settings().settings);
    const heard: RunChange[] = [];
    const watching = watcher.watch('a', change => heard.push(change));
    const [socket] = FakeSocket.all;
    socket.open();
    socket.onmessage?.({ data: '<html>a proxy' });
    expect(socket.closed).toBe(true);
    watching.dispose();
  });

  it('has lines come along with the news, and says when they have', async () => {
    const watcher = new Watcher(settings().settings);
    const watching = watcher.watch('a', () => undefined);
    const [socket] = FakeSocket.all;
    socket.open();
    const views = [watcher.followLog('a', null), watcher.followLog('a', 'launcher')];
    await sent();
    expect(socket.sent).toHaveLength(1); // one message, and so one answer
    expect(JSON.parse(socket.sent.at(-1)!).tails).toEqual([
      { id: 'a', rank: null, launcher: null },
      { id: 'a', rank: null, launcher: 'launcher' }
    ]);
    socket.onmessage?.({
      data: '[{"kind":"log","id":"a","ranks":{},"all":1,"tails":[],"push":7}]'
    });
    expect(socket.sent.at(-1)).toBe('{"got":7}');
    views.forEach(view => view.dispose());
    await sent();
    expect(socket.sent.at(-1)).toBe('{"watch":["a"],"tails":[]}');
    watching.dispose();
  });

  it('comes back after a lost connection, waits longer each time, and says so once', async () => {
    vi.useFakeTimers();
    const watcher = new Watcher(settings().settings);
    const heard: RunChange[] = [];
    const watching = watcher.watch('a', change => heard.push(change));
    FakeSocket.all[0].open();
    FakeSocket.all[0].lose();
    vi.advanceTimersByTime(700);
    expect(FakeSocket.all.length).toBe(2);
    FakeSocket.all[1].lose();
    vi.advanceTimersByTime(400);
    expect(FakeSocket.all.length).toBe(2);
    vi.advanceTimersByTime(1000);
    expect(FakeSocket.all.length).toBe(3);
    FakeSocket.all[2].open();
    await sent();
    expect(FakeSocket.all[2].sent).toEqual(['{"watch":["a"],"tails":[]}']);
    expect(heard).toEqual([
      { kind: 'connection', online: false },
      { kind: 'connection', online: true }
    ]);
    watching.dispose();
    vi.advanceTimersByTime(60_000);
    expect(FakeSocket.all.length).toBe(3);
  });
});
