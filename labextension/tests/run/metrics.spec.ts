// How the charts of a run are kept up to date: what they ask for, and what they say while they wait.
import * as fc from 'fast-check';
import { beforeEach, describe, expect, it, vi } from 'vitest';

import { framed } from '../../src/run/bundles';
import { CurvesReading } from '../../src/run/curvesreading';
import { Metrics } from '../../src/run/metrics';
import type { ICurve, ICurves, ICurvesQuery } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { FakeSource, runInfo } from './fakesource';

interface IPlot {
  setScale(name: string, range: { min: number; max: number }): void;
  data: number[][];
  options: { scales: { y: { range: (plot: null, min: number, max: number) => number[] } } };
  scales: { x: { min: number; max: number } };
}
const plots = vi.hoisted(() => ({ drawn: [] as IPlot[] }));

vi.mock('uplot', () => ({
  default: class implements IPlot {
    static rangeNum = (min: number, max: number) => [min, max];
    width = 300;
    over = document.createElement('div');
    scales: IPlot['scales'];
    constructor(
      readonly options: IPlot['options'],
      public data: number[][]
    ) {
      this.scales = { x: { min: data[0][0], max: data[0].at(-1) ?? 0 } };
      plots.drawn.push(this);
    }
    destroy() {}
    setData(data: number[][]) {
      this.data = data;
    }
    setScale(_: string, x: { min: number; max: number }) {
      this.scales = { x };
    }
    setSelect() {}
    setSize() {}
    posToVal = (at: number) => at;
  }
}));

const curve = (name: string, values: (number | null)[], keep?: number): ICurve => {
  const steps = values.map((_, step) => step + (keep ?? 0));
  const band = { steps, mean: values, min: values, max: values, times: steps };
  const last = { step: 0, mean: 1, min: 1, max: 1, ranks: 16, of: 16 };
  return { name, last, ranks: [], band: { ...band, whole: 2, ranks: [], keep } };
};

/** A server that has the curves of many metrics, and notes what it is asked for. */
class Server extends FakeSource {
  readonly queries: ICurvesQuery[] = [];
  answer: (query: ICurvesQuery) => Promise<ICurves>;

  constructor(public names: string[]) {
    super(runInfo(16));
    this.answer = async query => ({
      version: String(this.queries.length),
      names: this.names,
      curves: this.names.filter(one => query.names?.includes(one)).map(one => curve(one, [2, 1]))
    });
  }

  override curves(points = 0, query: ICurvesQuery = {}): Promise<ICurves> {
    expect(points).toBeLessThanOrEqual(2000);
    this.queries.push(query);
    return this.answer(query);
  }
}

function shown(source: FakeSource) {
  const abort = new AbortController();
  const root = document.body;
  const context = { source, trans: english, signal: abort.signal, root, bundles: framed };
  const metrics = new Metrics({ ...context, announce: () => {} });
  document.body.append(metrics.node);
  metrics.update(source.info);
  return { metrics, abort };
}

describe('curves', () => {
  it('are what was known with what is new', async () => {
    const numbers = fc.array(fc.integer());
    const answers = fc.array(fc.record({ keep: fc.nat(5), a: numbers, b: fc.boolean() }));
    await fc.assert(
      fc.asyncProperty(answers, async turns => {
        let a: number[] = [];
        const told: ICurves[] = [];
        const whole = turns.map(({ keep: most, a: more, b }, version) => {
          const keep = Math.min(most, a.length);
          a = [...a.slice(0, keep), ...more];
          const names = b ? ['b', 'a'] : ['a'];
          told.push({
            version: `${version}`,
            names,
            curves: [curve('a', more, keep || undefined)]
          });
          return a;
        });
        const source = new Server([]);
        source.answer = async () => told[source.queries.length - 1];
        const reading = new CurvesReading(source);
        for (const [version, values] of whole.entries()) {
          const found = await reading.read(100);
          expect(found.curves.map(one => one.band?.mean)).toEqual([values]);
          expect(source.queries[version].since).toBe(version ? `${version - 1}` : undefined);
        }
      })
    );
  });

  it('are asked for where a chart is in sight, and of ranks that are chosen', async () => {
    const seen: { tell: (entries: object[]) => void } = { tell: () => {} };
    class Observer {
      constructor(tell: (entries: object[]) => void) {
        seen.tell = tell;
      }
      observe() {}
      disconnect() {}
    }
    vi.stubGlobal('IntersectionObserver', Observer);
    const source = new Server(['loss', 'acc', 'a,b']);
    const { metrics, abort } = shown(source);
    metrics.changed();
    const asked = () => source.queries.at(-1);
    await vi.waitFor(() => expect(asked()?.names).toEqual(['loss', 'acc', 'a,b']));
    expect([source.queries[0].names, asked()?.ranks]).toEqual([[], undefined]);
    const charts = [...metrics.node.querySelectorAll('.jpd-chart')];
    const tell = (isIntersecting: boolean, ...targets: Element[]) =>
      seen.tell(targets.map(target => ({ target, isIntersecting })));
    tell(false, charts[0], charts[2]);
    metrics.changed();
    await vi.waitFor(() => expect(asked()?.names).toEqual(['acc']));
    // What comes into sight is asked for, also if nothing was logged meanwhile.
    tell(true, charts[2]);
    await vi.waitFor(() => expect(asked()?.names).toEqual(['acc', 'a,b']));
    metrics.node.querySelector<HTMLElement>('[aria-label="Rank 3"]')?.click();
    await vi.waitFor(() => expect(asked()?.ranks).toBe('3'));
    abort.abort();
    vi.unstubAllGlobals();
  });

  it('say how old they are while they cannot be read', async () => {
    const clock = vi.spyOn(performance, 'now');
    const began = performance.now();
    const source = new Server(['loss']);
    const { metrics, abort } = shown(source);
    metrics.changed();
    const age = metrics.node.querySelector<HTMLElement>('.jpd-staleness') as HTMLElement;
    await vi.waitFor(() => expect(source.queries.length).toBe(2));
    expect(age.hidden).toBe(true);
    const { answer } = source;
    let go = () => {};
    source.answer = query => new Promise(resolve => (go = () => resolve(answer(query))));
    clock.mockReturnValue(began);
    metrics.changed();
    await vi.waitFor(() => expect(source.queries.length).toBe(3));
    clock.mockReturnValue(began + 12_500);
    await vi.waitFor(() => expect(age.textContent).toMatch(/^1[12] s old$/));
    go();
    await vi.waitFor(() => expect(age.hidden).toBe(true));
    clock.mockRestore();
    abort.abort();
  });
});

describe('what is chosen for the charts', () => {
  const line = (rank: number, values: number[], first = 0) => {
    const steps = values.map((_, i) => 10 * i);
    return { rank, steps, values, times: steps.map(step => 1001 + first + step / 10) };
  };
  const made: AbortController[] = [];
  const charts = async (notebook: string | null, ...curves: ICurve[]) => {
    const source = new FakeSource(runInfo(2, 'running', { notebook }));
    source.curveList = curves;
    const { metrics, abort } = shown(source);
    made.push(abort);
    metrics.changed();
    await vi.waitFor(() => expect(plots.drawn.length).toBe(curves.length));
    return metrics.node;
  };
  const named = <T extends HTMLElement>(node: HTMLElement, label: string) =>
    node.querySelector<T>(`[aria-label="${label}"]`) as T;
  const choose = (node: HTMLElement, axis: string) => {
    const list = named<HTMLSelectElement>(node, 'Horizontal axis');
    list.value = axis;
    list.dispatchEvent(new Event('change'));
  };
  const last = () => plots.drawn.at(-1) as IPlot;
  const loss: ICurve = {
    name: 'loss',
    band: null,
    ranks: [line(0, [3, 2, 1]), line(1, [5, 4, 3], 0.5)]
  };

  beforeEach(() => {
    made.splice(0).forEach(abort => abort.abort());
    document.body.replaceChildren();
    localStorage.clear();
    plots.drawn = [];
    vi.spyOn(HTMLElement.prototype, 'clientWidth', 'get').mockReturnValue(600);
  });

  it('is the axis: steps, the time of each rank, or epochs where they are logged', async () => {
    const epoch: ICurve = { name: 'epoch', band: null, ranks: [line(0, [0, 0, 1])] };
    const node = await charts('a.ipynb', loss, epoch);
    expect(plots.drawn[0].data[0]).toEqual([0, 10, 20]);
    choose(node, 'time');
    const [xs, first, second] = plots.drawn.at(-2)?.data ?? [];
    expect(xs).toEqual([0, 0.5, 1, 1.5, 2, 2.5]);
    expect([first, second]).toEqual([
      [3, undefined, 2, undefined, 1, undefined],
      [undefined, 5, undefined, 4, undefined, 3]
    ]);
    choose(node, 'epoch');
    expect(plots.drawn.at(-2)?.data[0]).toEqual([0, 0.5, 1]);
    // What is said of a chart names what it is drawn over.
    const said = () => node.querySelector('.jpd-chart-box')?.getAttribute('aria-label');
    expect(said()).toMatch(/^loss over epochs; at epoch 1 it is mean 2/);
    choose(node, 'time');
    expect(said()).toMatch(/^loss over time; after 2.5 s it is mean 2/);
    choose(node, 'step');
    expect(said()).toMatch(/^loss over steps; at step 20 it is mean 2/);
  });

  it('is no axis that there is not', async () => {
    const node = await charts(null, loss);
    const list = named<HTMLSelectElement>(node, 'Horizontal axis');
    const offered = [...list.options].filter(one => !one.hidden).map(one => one.value);
    expect(offered).toEqual(['step', 'time']);
    choose(node, 'time');
    // A snapshot has no times.
    plots.drawn = [];
    const ranks = loss.ranks.map(one => ({ ...one, times: [] }));
    const kept = await charts(null, { ...loss, ranks });
    expect(named<HTMLSelectElement>(kept, 'Horizontal axis').value).toBe('step');
    expect(last().data[0]).toEqual([0, 10, 20]);
  });

  it('is a zoom by the wheel with Ctrl, around the pointer; without, the page scrolls', async () => {
    const node = await charts(null, loss);
    const box = node.querySelector('.jpd-chart-box') as HTMLElement;
    const turn = (deltaY: number, ctrlKey: boolean) => {
      const event = new WheelEvent('wheel', { deltaY, ctrlKey, clientX: 10, cancelable: true });
      box.dispatchEvent(event);
      return event.defaultPrevented;
    };
    expect(turn(-1000, false)).toBe(false);
    expect(last().scales.x).toEqual({ min: 0, max: 20 });
    expect(turn(-1000, true)).toBe(true);
    expect(last().scales.x).toEqual({ min: 5, max: 15 });
    expect(named(node, 'Reset zoom').hidden).toBe(false);
    turn(1000, true);
    expect(named(node, 'Reset zoom').hidden).toBe(true);
    // Where another chart has led, there may be no data.
    last().setScale('x', { min: 30, max: 50 });
    turn(-1000, true);
    expect(last().scales.x).toEqual({ min: 20, max: 30 });
    const larger = { key: '+', ctrlKey: true, cancelable: true };
    expect(box.dispatchEvent(new KeyboardEvent('keydown', larger))).toBe(true);
  });

  it('is a range of values, of which one end may follow the data', async () => {
    const node = await charts('a.ipynb', loss);
    named(node, 'Range of values of loss').click();
    const [low, high] = ['Lowest', 'Highest'].map(end =>
      named<HTMLInputElement>(node, `${end} value of loss`)
    );
    const type = (field: HTMLInputElement, value: string) => {
      field.value = value;
      field.dispatchEvent(new Event('input', { bubbles: true }));
    };
    const range = () => last().options.scales.y.range(null, 1, 5);
    type(high, '3');
    expect(range()).toEqual([1, 3]);
    type(low, '4');
    expect([range(), low.getAttribute('aria-invalid')]).toEqual([[1, 3], 'true']);
    type(low, '2');
    expect([range(), low.getAttribute('aria-invalid')]).toEqual([[2, 3], null]);
    type(high, '');
    type(low, '7');
    expect(range()).toEqual([7, 8]);
    type(low, '');
    type(high, '0.5');
    expect(range()).toEqual([-0.5, 0.5]);
    node.querySelector<HTMLElement>('[title="Logarithmic axis"]')?.click();
    expect(range()).toEqual([0.25, 0.5]);
  });

  it('is that of any metric, whatever its name', async () => {
    const all = ['constructor', '__proto__', 'toString'].map(name => ({ ...loss, name }));
    const node = await charts('a.ipynb', ...all);
    const names = (of: HTMLElement) =>
      [...of.querySelectorAll('.jpd-chart-name')].map(one => one.textContent);
    expect(names(node)).toEqual(['constructor', '__proto__', 'toString']);
    expect(plots.drawn.length).toBe(3);
    named(node, 'Range of values of __proto__').click();
    const high = named<HTMLInputElement>(node, 'Highest value of __proto__');
    expect(high.value).toBe('');
    high.value = '3';
    high.dispatchEvent(new Event('input', { bubbles: true }));
    plots.drawn = [];
    const next = await charts('a.ipynb', ...all);
    expect(named<HTMLInputElement>(next, 'Highest value of __proto__').value).toBe('3');
    expect(named<HTMLInputElement>(next, 'Highest value of toString').value).toBe('');
  });

  it('is kept for the next run of the notebook, pinned charts first', async () => {
    const curves = ['a', 'b', 'c'].map(name => ({ ...loss, name }));
    const node = await charts('a.ipynb', ...curves);
    const names = (of: HTMLElement) =>
      [...of.querySelectorAll('.jpd-chart-name')].map(one => one.textContent);
    named(node, 'Pin c: show it first').focus();
    named(node, 'Pin c: show it first').click();
    expect(names(node)).toEqual(['c', 'a', 'b']);
    expect(document.activeElement).toBe(named(node, 'Pin c: show it first'));
    choose(node, 'time');
    const slider = named<HTMLInputElement>(node, 'Smoothing');
    slider.value = '0.5';
    slider.dispatchEvent(new Event('input'));
    plots.drawn = [];
    const next = await charts('a.ipynb', ...curves);
    expect(names(next)).toEqual(['c', 'a', 'b']);
    expect(named(next, 'Pin c: show it first').getAttribute('aria-pressed')).toBe('true');
    expect(named<HTMLInputElement>(next, 'Smoothing').value).toBe('0.5');
    expect(plots.drawn[0].data[0][1]).toBe(0.5);
    plots.drawn = [];
    expect(names(await charts('b.ipynb', ...curves))).toEqual(['a', 'b', 'c']);
  });
});
