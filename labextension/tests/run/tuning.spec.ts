import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ITrialInfo, ITuning } from '../../src/answers/runs';
import { framed } from '../../src/run/bundles';
import type { IContext } from '../../src/run/context';
import { english } from '../../src/run/trans';
import { place, ticks } from '../../src/run/trials/scale';
import { Tuning } from '../../src/run/trials/tuning';
import { FakeSource, runInfo } from './fakesource';

function trial(number: number, lr: number, kind: string, value: number | null): ITrialInfo {
  return {
    number,
    id: `r-1-t${number}`,
    state: value === null ? 'running' : 'succeeded',
    value,
    parameters: { lr, kind },
    reason: null,
    started: 1000 + number,
    ended: value === null ? null : 1002 + 2 * number
  };
}

function tuning(trials: ITrialInfo[], more: Partial<ITuning> = {}): ITuning {
  return {
    metric: 'accuracy',
    goal: 'max',
    strategy: 'bayesian',
    max_jobs: 5,
    parallel: 2,
    parameters: [
      { name: 'lr', kind: 'real', low: 1e-4, high: 1, log: true, values: [] },
      { name: 'kind', kind: 'choice', low: null, high: null, log: false, values: ['a', '<b>'] }
    ],
    trials,
    best: 1,
    importance: { lr: 0.75, kind: 0.25 },
    ...more
  };
}

const THREE = [
  trial(0, 0.01, 'a', 0.5),
  trial(1, 0.1, '<b>', 0.9),
  trial(2, 1, 'a', 0.7),
  trial(3, 0.5, 'a', null)
];

let abort: AbortController;
const opened: string[] = [];

function part(): Tuning {
  const context: IContext = {
    source: new FakeSource(runInfo(0)),
    trans: english,
    signal: abort.signal,
    announce: () => undefined,
    root: document.body,
    bundles: framed
  };
  const made = new Tuning(context, id => opened.push(id));
  document.body.appendChild(made.node);
  return made;
}

beforeEach(() => {
  abort = new AbortController();
  opened.length = 0;
});
afterEach(() => {
  abort.abort();
  document.body.replaceChildren();
  vi.restoreAllMocks();
});

const rows = (made: Tuning) =>
  [...made.node.querySelectorAll('tbody tr')].map(row =>
    [...row.querySelectorAll('td')].map(cell => cell.textContent).join('|')
  );

function head(made: Tuning, name: string): HTMLButtonElement {
  const found = [...made.node.querySelectorAll<HTMLButtonElement>('th button')].find(
    one => one.textContent === name
  );
  if (!found) {
    throw new Error(name);
  }
  return found;
}

describe('a tuning run', () => {
  it('is not there for a run that tunes nothing', () => {
    const made = part();
    made.update(undefined);
    expect(made.node.hidden).toBe(true);
  });

  it('shows the best trial first, and what there is to say', () => {
    const made = part();
    made.update(tuning(THREE));
    expect(made.node.hidden).toBe(false);
    expect(rows(made)).toEqual([
      '1|succeeded|0.9|0.1|<b>|3.0 s',
      '2|succeeded|0.7|1|a|4.0 s',
      '0|succeeded|0.5|0.01|a|2.0 s',
      '3|running||0.5|a|'
    ]);
    expect(made.node.querySelector('.jpd-tuning-summary')?.textContent).toBe(
      '3 of 5 trials have ended · 1 running · best: Trial 1: 0.9 (lr=0.1, kind=<b>)'
    );
    expect(made.node.querySelector('tr.jpd-best')?.textContent).toContain('0.9');
  });

  it('sorts by any column, what is missing last', () => {
    const made = part();
    made.update(tuning(THREE));
    head(made, 'lr').click();
    expect(rows(made).map(row => row[0])).toEqual(['0', '1', '3', '2']);
    head(made, 'lr').click();
    expect(rows(made).map(row => row[0])).toEqual(['2', '3', '1', '0']);
    expect(head(made, 'lr').closest('th')?.getAttribute('aria-sort')).toBe('descending');
    head(made, 'Duration').click();
    expect(rows(made).at(-1)?.[0]).toBe('3');
    // More trials come: the order stays.
    made.update(tuning([...THREE, trial(4, 0.2, 'a', 0.1)]));
    expect(rows(made).map(row => row[0])).toEqual(['0', '1', '2', '4', '3']);
  });

  it('says from which trial each one continues, and keeps the order', () => {
    const made = part();
    made.update(tuning(THREE));
    head(made, 'Trial').click();
    const later = { ...trial(4, 0.2, 'a', 0.8), source: { trial: 1, values: 6 } };
    made.update(tuning([...THREE, later]));
    expect(rows(made)).toEqual([
      '0|succeeded|0.5|0.01|a|2.0 s|',
      '1|succeeded|0.9|0.1|<b>|3.0 s|',
      '2|succeeded|0.7|1|a|4.0 s|',
      '3|running||0.5|a||',
      '4|succeeded|0.8|0.2|a|6.0 s|1 after 6 values'
    ]);
    head(made, 'Continues').click();
    expect(rows(made)[0][0]).toBe('4');
  });

  it('filters by words, and by a column', () => {
    const made = part();
    made.update(tuning(THREE));
    const input = made.node.querySelector('input') as HTMLInputElement;
    input.value = 'kind=a SUCC';
    input.dispatchEvent(new Event('input'));
    expect(rows(made).map(row => row[0])).toEqual(['2', '0']);
  });

  it('opens a trial as a run', () => {
    const made = part();
    made.update(tuning(THREE));
    made.node.querySelector<HTMLButtonElement>('tbody button')?.click();
    expect(opened).toEqual(['r-1-t1']);
  });

  it('draws trials, their ways and weights, and nothing while there is nothing', () => {
    const made = part();
    made.update(tuning([trial(0, 0.1, 'a', null)], { best: null, importance: {} }));
    expect(made.node.querySelectorAll('figure')).toHaveLength(0);
    made.update(tuning(THREE));
    expect(made.node.querySelectorAll('figure')).toHaveLength(3);
    expect(made.node.querySelectorAll('.jpd-dot')).toHaveLength(3);
    expect(made.node.querySelectorAll('.jpd-way')).toHaveLength(3);
    expect(made.node.querySelectorAll('.jpd-way-best')).toHaveLength(1);
    expect(made.node.querySelectorAll('.jpd-weight')).toHaveLength(2);
    expect(made.node.innerHTML).not.toMatch(/NaN|Infinity|undefined/);
  });

  it('finds places on axes', () => {
    const [lr, kind] = tuning([]).parameters;
    expect(place(lr, 0.01)).toBeCloseTo(0.5);
    expect(place(lr, 100)).toBe(1);
    expect(place(lr, 'x')).toBeNull();
    expect(place(kind, '<b>')).toBe(0.75);
    expect(place(kind, 'c')).toBeNull();
    expect(ticks(kind)).toEqual([
      [0.25, 'a'],
      [0.75, '<b>']
    ]);
    expect(place({ ...lr, low: 1, high: 1, log: false }, 1)).toBe(0);
  });

  it('draws how a cell scales, and marks what nobody has measured', () => {
    const row = (ranks: number, speedup: number, limit: string, projected = false) => ({
      id: projected ? null : `r-1-t${ranks}`,
      ranks,
      throughput: 50 * speedup,
      speedup,
      efficiency: speedup / ranks,
      low: (speedup / ranks) * 0.9,
      high: (speedup / ranks) * 1.1,
      limit,
      why: projected ? '' : '90 % of the loss',
      projected,
      usd_per_hour: null,
      usd_per_million: null
    });
    const rows = [row(1, 1, 'compute'), row(2, 1.6, 'communication'), row(4, 2.3, '', true)];
    const laws = [{ name: 'Amdahl', serial: 0.25, error: null }];
    const made = part();
    made.update(tuning(THREE, { scaling: { unit: 'steps/s', rows, laws, best: 'Amdahl' } }));
    const { node } = made;
    expect(node.querySelector('h4')?.textContent).toBe('Scaling');
    const [drawing] = node.querySelectorAll('svg');
    expect(drawing.getAttribute('aria-label')).toBe('Speed-up by ranks');
    expect(drawing.querySelectorAll('circle')).toHaveLength(2);
    const told = [...node.querySelectorAll('.jpd-scaling tbody tr')].map(one => one.textContent);
    expect(told[1]).toBe('2801.6080 %72 % – 88 %communication (90 % of the loss)');
    expect(told[2]).toContain('4 (projection)');
    expect(node.querySelector('.jpd-scaling')?.textContent).toContain('Amdahl: 25 % serial');
  });
});
