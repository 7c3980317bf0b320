// How the charts of a run are kept up to date: what they ask for, and what they say while they wait.
import * as fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';

import { framed } from '../../src/run/bundles';
import { CurvesReading } from '../../src/run/curvesreading';
import { Metrics } from '../../src/run/metrics';
import type { ICurve, ICurves, ICurvesQuery } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { FakeSource, runInfo } from './fakesource';

vi.mock('uplot', () => ({
  default: class {
    destroy() {}
    setData() {}
    setScale() {}
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

function shown(source: Server) {
  const abort = new AbortController();
  const root = document.body;
  const context = { source, trans: english, signal: abort.signal, root, bundles: framed };
  const metrics = new Metrics({ ...context, announce: () => {} });
  document.body.append(metrics.node);
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
    metrics.changed(16);
    const asked = () => source.queries.at(-1);
    await vi.waitFor(() => expect(asked()?.names).toEqual(['loss', 'acc', 'a,b']));
    expect([source.queries[0].names, asked()?.ranks]).toEqual([[], undefined]);
    const charts = [...metrics.node.querySelectorAll('.jpd-chart')];
    const tell = (isIntersecting: boolean, ...targets: Element[]) =>
      seen.tell(targets.map(target => ({ target, isIntersecting })));
    tell(false, charts[0], charts[2]);
    metrics.changed(16);
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
    metrics.changed(16);
    const age = metrics.node.querySelector<HTMLElement>('.jpd-staleness') as HTMLElement;
    await vi.waitFor(() => expect(source.queries.length).toBe(2));
    expect(age.hidden).toBe(true);
    const { answer } = source;
    let go = () => {};
    source.answer = query => new Promise(resolve => (go = () => resolve(answer(query))));
    clock.mockReturnValue(began);
    metrics.changed(16);
    await vi.waitFor(() => expect(source.queries.length).toBe(3));
    clock.mockReturnValue(began + 12_500);
    await vi.waitFor(() => expect(age.textContent).toMatch(/^1[12] s old$/));
    go();
    await vi.waitFor(() => expect(age.hidden).toBe(true));
    clock.mockRestore();
    abort.abort();
  });
});
