/** How a run ends, hangs or is not there. */
import { describe, expect, it, vi } from 'vitest';
import { RunMissing } from '../../../src/run/source';
import { FakeSource, runInfo } from '../fakesource';
import { all, byName, open, show, text, withPage } from './page';

vi.mock('uplot', async () => ({ default: (await import('./plots')).FakePlot }));

withPage();

describe('how a run ends', () => {
  const error = {
    kind: 'exception' as const,
    type: 'ValueError',
    message: 'bad <b>luck</b>',
    text: 'Traceback …\nValueError: bad luck',
    exit_code: 1,
    signal_name: null,
    peak_memory_bytes: null,
    host: 'node-0'
  };

  const card = {
    title: 'rank 1 failed first',
    about: 'host node-0, exit code 1',
    what: 'ValueError: bad <b>luck</b>',
    hints: [],
    causes: [],
    places: [],
    others: [],
    files: 'logs: /runs/r-1',
    parts: []
  };

  it('a long traceback is folded, so that the card stays short', async () => {
    const source = new FakeSource(runInfo(1, 'failed'));
    const frame = { label: 'In[7]', file: '/tmp/7.py', line: 2, function: 'f', source: 'f()' };
    const frames = Array.from({ length: 30 }, () => frame);
    source.errorList = [{ ...error, rank: 0, frames, collateral: false }];
    source.cardTold = card;
    const node = await show(source);
    await vi.waitFor(() => expect(all(node, '.jpd-frame').length).toBe(30));
    expect(all(node, '.jpd-failure > details[open]').length).toBe(0);
  });

  it('reads a card and results again that could not be read', async () => {
    const source = new FakeSource(runInfo(1, 'failed'));
    source.cardTold = card;
    const asked = vi.spyOn(source, 'card').mockRejectedValueOnce(new Error('503'));
    const results = vi.spyOn(source, 'results').mockRejectedValueOnce(new Error('503'));
    const node = await show(source);
    await vi.waitFor(() => expect(node.querySelector('.jpd-failure')).not.toBeNull(), 4000);
    expect([asked.mock.calls.length, results.mock.calls.length]).toEqual([2, 2]);
  });

  it('a run that was stopped while it hung says where its ranks were', async () => {
    const source = new FakeSource(runInfo(2, 'stopped'));
    source.cardTold = {
      ...card,
      title: 'run r-1 was stopped',
      what: 'stopped by the user',
      places: ['rank 1 was at In[2], line 3: time.sleep(600)']
    };
    const node = await show(source);
    await vi.waitFor(() =>
      expect(text(node, '.jpd-failure-line')).toBe('Rank 1 was at In[2], line 3: time.sleep(600)')
    );
  });

  it('a frame of a library says which one, and may be broken behind the parts of its path', async () => {
    const source = new FakeSource(runInfo(1, 'failed'));
    const file = '/home/me/.venv/lib/python3.11/site-packages/torch/nn/module.py';
    const frame = { label: file, file, line: 2, function: 'f', source: '' };
    source.errorList = [{ ...error, rank: 0, frames: [frame], collateral: false }];
    source.cardTold = card;
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-frame-place')).toBe('torch/nn/module.py:2 · f'));
    const place = node.querySelector<HTMLElement>('.jpd-frame-place');
    expect(place?.innerHTML.split('<wbr>').slice(0, 2)).toEqual(['torch/', 'nn/']);
    expect([place?.title, place?.dataset.file]).toEqual([file, file]);
  });

  it('the root cause comes first, with the cell’s lines; the others are folded', async () => {
    const source = new FakeSource(runInfo(3, 'failed'));
    const frames = [
      {
        label: 'In[7]',
        file: '/tmp/7.py',
        line: 2,
        function: 'train',
        source: 'raise ValueError("bad")'
      },
      { label: '', file: '/lib/a.py', line: 1, function: 'f', source: 'g()' },
      { label: '', file: '/lib/b.py', line: 1, function: 'g', source: 'boom()' }
    ];
    source.errorList = [
      { ...error, rank: 1, frames, collateral: false },
      { ...error, rank: 0, frames: [], collateral: true, message: 'port 3940' },
      { ...error, rank: 2, frames: [], collateral: true, message: 'port 3941' }
    ];
    source.cardTold = {
      ...card,
      hints: ['perhaps try https://x.test/doc'],
      places: ['rank 1 was at In[7], line 2: raise ValueError("bad")'],
      parts: [{ kind: 'traceback', title: 'Traceback of rank 1', text: 'is drawn from the error' }]
    };
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-failure-head b')).toBe('Rank 1 failed first'));
    expect(text(node, '.jpd-failure-what')).toBe('ValueError: bad <b>luck</b>');
    const [, , hint, place] = [...node.querySelector('.jpd-failure')!.children];
    expect(hint.textContent).toBe('→Perhaps try https://x.test/doc');
    expect(place.textContent).toBe('Rank 1 was at In[7], line 2: raise ValueError("bad")');
    expect(text(node, '.jpd-frame-own code')).toBe('raise ValueError("bad")');
    expect(
      all(node, '.jpd-failure > details').map(one => (one as HTMLDetailsElement).open)
    ).toEqual([true, false, false]);
    expect(text(node, '.jpd-failure')).not.toContain('is drawn from the error');
    expect(all(node, '.jpd-collateral .jpd-ranks').map(ranks => ranks.textContent)).toEqual([
      '[0,2]'
    ]);
    expect(node.querySelector('b b')).toBeNull();
  });

  it('no rank says why: the run does, and leads to the launcher', async () => {
    const more = { reason: 'horovodrun: no such host: h9', launchers: ['launcher'] };
    const source = new FakeSource(runInfo(2, 'failed', more));
    source.errorList = [{ ...error, rank: 1, frames: [], collateral: true }];
    const parts = [
      { kind: 'launcher' as const, title: 'launcher.log, its last lines', text: 'h9' }
    ];
    const what = 'horovodrun: no such host: h9';
    source.cardTold = { ...card, title: 'the run failed', about: 'r-1', what, parts };
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-failure-head b')).toBe('The run failed'));
    expect(text(node, '.jpd-failure-what')).toBe('horovodrun: no such host: h9');
    expect(text(node, '.jpd-failure summary')).toBe('1 rank ended because of it');
    expect(all(node, '.jpd-notice').length).toBe(0);
    byName(node, 'Show the launcher’s log').click();
    expect(text(node, '[role=tab][aria-selected=true]')).toBe('Launcher');
  });

  it('of an attempt, it is folded away under the next one, whose log stands beside its own', async () => {
    const source = new FakeSource(runInfo(2));
    source.lines = ['x'];
    source.errorList = [{ ...error, rank: 1, frames: [], collateral: false }];
    source.cardTold = card;
    const node = await show(source);
    const [restarts] = all(node, 'details').filter(one => one.querySelector('.jpd-restarts'));
    const choice = node.querySelector<HTMLSelectElement>('.jpd-logs select')!;
    expect([restarts.hidden, choice.hidden]).toEqual([true, true]);
    source.tell({ kind: 'run', run: runInfo(2, 'running', { attempt: 2, max_restarts: 2 }) });
    expect(text(restarts, 'summary')).toBe('Why it was restarted 2 times');
    expect(source.asked).not.toContain('errors of 0');
    (restarts as HTMLDetailsElement).open = true;
    restarts.dispatchEvent(new Event('toggle'));
    await vi.waitFor(() => expect(all(restarts, '.jpd-failure').length).toBe(2));
    expect(all(restarts, '.jpd-failure-head').map(head => head.textContent)).toEqual([
      'Rank 1 failed firsthost node-0, exit code 1',
      'Rank 1 failed firsthost node-0, exit code 1'
    ]);
    expect([...choice.options].map(option => option.text)).toEqual([
      'attempt 2',
      'attempt 1',
      'attempt 0'
    ]);
    choice.selectedIndex = 2;
    choice.dispatchEvent(new Event('change'));
    await vi.waitFor(() => expect(source.asked).toContain('all -200 200 of attempt 0'));
    const asked = source.asked.length;
    source.grow('of the current attempt');
    expect(source.asked.length).toBe(asked);
    choice.selectedIndex = 0;
    choice.dispatchEvent(new Event('change'));
    await vi.waitFor(() => expect(source.asked.at(-1)).toBe('all -200 200'));
  });

  it('results are shown once, equal ones folded', async () => {
    const source = new FakeSource(runInfo(4, 'succeeded'));
    source.resultList = [{ ranks: [0, 1, 3], repr: '0.5', error: null, bytes: 3 }];
    const node = await show(source);
    await vi.waitFor(() => expect(text(node, '.jpd-result .jpd-ranks')).toBe('[0-1,3]'));
  });

  it('a lost run says where its files are', async () => {
    const node = await show(
      new FakeSource(runInfo(1, 'lost', { reason: 'the supervisor is gone' }))
    );
    expect(text(node, '.jpd-notice')).toContain('The supervisor is gone');
    expect(text(node, '.jpd-notice')).toContain('/runs/r-1');
  });

  it('an unwatched run is not at its end: it says what to do, and Stop is there', async () => {
    const reason = 'the supervisor is gone';
    const source = new FakeSource(runInfo(2, 'unwatched', { reason }));
    const results = vi.spyOn(source, 'results');
    const node = await show(source);
    expect(text(node, '.jpd-state')).toBe('Unwatched');
    expect(node.querySelectorAll('.jpd-notice')).toHaveLength(1);
    expect(text(node, '.jpd-notice')).toContain('The supervisor is gone');
    expect(text(node, '.jpd-notice')).toContain(
      'Stop ends the ranks. %dist attach r-1 starts a new supervisor'
    );
    expect(results).not.toHaveBeenCalled();
    const stop = byName(node, 'Stop');
    expect(stop.hidden).toBe(false);
    stop.click();
    await vi.waitFor(() => expect(source.stops).toEqual([false]));
    source.tell({ kind: 'run', run: runInfo(2, 'running') });
    expect(node.querySelector('.jpd-notice')).toBeNull();
  });

  it('a stall shows the stacks that were taken, grouped, and they stay', async () => {
    const stall = { since: 1000, noticed: 1300 };
    const source = new FakeSource(runInfo(3, 'running', { stall, host_time: 1300 }));
    source.kept = { ...(await source.stacks()), time: 1301 };
    const node = await show(source);
    expect(text(node, '.jpd-notice b')).toBe('No rank has printed or logged for 5:00');
    await vi.waitFor(() => expect(text(node, '.jpd-stack b')).toBe('Ranks 0-1'));
    expect(text(node, '.jpd-stacks')).toContain('No answer from ranks 2');
    source.tell({ kind: 'run', run: runInfo(3, 'stopped', { ended: 1400 }) });
    await vi.waitFor(() => expect(node.querySelector('.jpd-notice-warning')).toBeNull());
    expect(text(node, '.jpd-stack b')).toBe('Ranks 0-1');
    expect(node.querySelector<HTMLElement>('.jpd-stacks-box')?.hidden).toBe(false);
  });

  it('ranks that wait for their user: a button leads to their prompt, where there is a way', async () => {
    const waits = {
      waiting: [1],
      reason: 'rank 1 waits at In[4], line 14 (to answer: %dist debug)'
    };
    const source = new FakeSource(runInfo(3, 'running', waits));
    const debug = vi.fn().mockRejectedValue(new Error('No notebook is open.'));
    const node = open({ source, debug });
    const label = '[aria-label="Answer the ranks that wait for you"]';
    await vi.waitFor(() => expect(node.querySelector<HTMLElement>(label)?.hidden).toBe(false));
    expect(text(node, '.jpd-detail')).toContain('Rank 1 waits at In[4], line 14');
    const button = node.querySelector<HTMLElement>(label) as HTMLElement;
    button.click();
    expect(debug.mock.calls[0][0].id).toBe('r-1');
    await vi.waitFor(() => expect(button.title).toBe('No notebook is open.'));
    source.tell({ kind: 'run', run: runInfo(3, 'running') });
    expect(button.hidden).toBe(true);
    const bare = open({ source: new FakeSource(runInfo(3, 'running', waits)) });
    await vi.waitFor(() => expect(text(bare, '.jpd-detail')).toContain('Rank 1 waits'));
    expect(bare.querySelector<HTMLElement>(label)?.hidden).toBe(true);
  });

  it('a run that is not here: says where it was looked for', async () => {
    const source = new FakeSource(runInfo(1));
    source.failure = new RunMissing('no run', '/home/me/runs');
    const missing = vi.fn();
    const node = open({ source, onMissing: missing });
    await vi.waitFor(() => expect(missing).toHaveBeenCalledOnce());
    expect(text(node, '.jpd-notice')).toContain('/home/me/runs');
  });
});
