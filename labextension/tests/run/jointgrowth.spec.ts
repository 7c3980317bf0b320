// Parts that wait to appear together: what counts is how things stand when they do.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { IContext } from '../../src/run/context';
import { JointGrowth } from '../../src/run/jointgrowth';
import { fitLog, type IFitted } from '../../src/run/logfit';
import { ProgressRows } from '../../src/run/progress';
import { english } from '../../src/run/trans';
import { runInfo } from './fakesource';

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

const { signal } = new AbortController();

function logOf() {
  const pages = { rows: 0 };
  const node = document.createElement('div');
  const log = { pages, list: { node, hasInlays: false }, begun: false };
  const growth = new JointGrowth(signal);
  const fit = (rows: number) => {
    pages.rows = rows;
    fitLog(log as unknown as IFitted, growth);
    return node.classList.contains('jpd-log-short');
  };
  const later = () => {
    vi.advanceTimersByTime(5000);
    return node.classList.contains('jpd-log-short');
  };
  return { fit, later, growth };
}

it('a log grows later when it grows line by line, and not if it is short again', () => {
  const { fit, later } = logOf();
  expect([fit(2), fit(9), fit(1), later()]).toEqual([true, true, true, true]);
  expect([fit(9), later()]).toEqual([true, false]);
});

it('a log with many lines at first grows immediately, with what waits', () => {
  const { fit, growth } = logOf();
  const grow = vi.fn();
  fit(0);
  growth.soon({}, grow);
  expect([fit(9), grow.mock.calls.length]).toEqual([false, 1]);
});

it('bars that a restart has taken away meanwhile do not appear', () => {
  const rows = new ProgressRows({ trans: english, signal } as unknown as IContext);
  const bar = { rank: 0, id: 1, n: 1, total: 2, desc: 'epoch', rate: null };
  const running = (attempt: number, bars = [bar]) =>
    rows.update(runInfo(2, 'running', { attempt, progress_by_rank: bars }));
  running(0);
  running(1, []);
  vi.advanceTimersByTime(5000);
  expect(rows.node.hidden).toBe(true);
  running(1);
  expect(rows.node.hidden).toBe(true);
  vi.advanceTimersByTime(5000);
  expect(rows.node.hidden).toBe(false);
});
