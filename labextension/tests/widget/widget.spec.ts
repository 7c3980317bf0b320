import { afterEach, describe, expect, it, vi } from 'vitest';
import widget from '../../src/widget';
import { runInfo } from '../run/fakesource';

type Callback = (...args: never[]) => void;

function model(run: string) {
  const heard = new Set<Callback>();
  return {
    get: (name: string) => (name === 'run' ? run : name === 'code' ? 'IPY_MODEL_c' : {}),
    on: (name: string, callback: Callback) => {
      if (name === 'msg:custom') {
        heard.add(callback);
      }
    },
    off: vi.fn(),
    send: vi.fn(),
    say: (message: unknown) => heard.forEach(callback => callback(...([message] as never[]))),
    widget_manager: { get_model: vi.fn() }
  };
}

afterEach(() => {
  vi.restoreAllMocks();
  document.body.replaceChildren();
});

describe('the widget', () => {
  it('makes a view for each place, and takes it away', () => {
    const made = model('a');
    const [first, second] = [document.createElement('div'), document.createElement('div')];
    document.body.append(first, second);
    const undo = [first, second].map(el => widget.render({ model: made, el }));
    expect(document.querySelectorAll('.jpd-run')).toHaveLength(2);
    undo.forEach(go => go());
    expect(document.querySelectorAll('.jpd-run')).toHaveLength(0);
    expect(made.send).toHaveBeenLastCalledWith({ kind: 'unwatch' });
  });

  it('goes on in the new place when its output is drawn anew', () => {
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    const made = model('b');
    const [before, after] = [document.createElement('div'), document.createElement('div')];
    document.body.append(before);
    const undoBefore = widget.render({ model: made, el: before });
    const view = before.querySelector('.jpd-run');
    now.mockReturnValue(10_000);
    before.remove();
    document.body.append(after);
    const undoAfter = widget.render({ model: made, el: after });
    expect(after.querySelector('.jpd-run')).toBe(view);
    undoBefore(); // late: the view is not here any more
    expect(after.querySelector('.jpd-run')).toBe(view);
    undoAfter();
    expect(document.querySelector('.jpd-run')).toBeNull();
  });

  it('opens a trial in the place of its tuning run, and goes back', async () => {
    const made = model('t');
    const trial = model('t-t0');
    made.widget_manager.get_model.mockResolvedValue(trial);
    const place = document.createElement('div');
    document.body.append(place);
    const undo = widget.render({ model: made, el: place });
    const all = (method: string) =>
      made.send.mock.calls.map(([sent]) => sent).filter(sent => sent.method === method);
    const asked = (method: string) => all(method)[0];
    const one = { number: 0, id: 't-t0', state: 'succeeded', value: 1, parameters: { lr: 2 } };
    const run = {
      ...runInfo(0),
      id: 't',
      tuning: {
        ...{ metric: 'm', goal: 'max', strategy: 'grid', max_jobs: 1, parallel: 1, best: 0 },
        parameters: [],
        trials: [{ ...one, reason: null, started: 1, ended: 2 }],
        importance: {}
      }
    };
    made.say({ kind: 'answer', ask: asked('run').ask, result: run });
    await vi.waitFor(() => expect(place.querySelector('tbody button')).not.toBeNull());
    for (let clicks = 0; clicks < 2; clicks++) {
      (place.querySelector('[aria-label="Open trial 0"]') as HTMLElement).click();
    }
    expect(asked('open').args).toEqual({ trial: 't-t0' });
    all('open').forEach(({ ask }) => made.say({ kind: 'answer', ask, result: 'M' }));
    await vi.waitFor(() => expect(place.querySelector('[data-run="t-t0"]')).not.toBeNull());
    expect(place.querySelectorAll('[data-run="t-t0"]')).toHaveLength(1);
    expect(made.widget_manager.get_model).toHaveBeenCalledWith('M');
    const whole = place.querySelector<HTMLElement>('[data-run="t"]') as HTMLElement;
    expect(whole.hidden).toBe(true);
    (place.querySelector('[aria-label="Back to run t"]') as HTMLElement).click();
    expect(place.querySelector('[data-run="t-t0"]')).toBeNull();
    expect(trial.send).toHaveBeenLastCalledWith({ kind: 'unwatch' });
    expect(whole.hidden).toBe(false);
    undo();
  });

  it('leaves a view alone that is merely scrolled out of sight', () => {
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    const made = model('c');
    const area = document.createElement('div');
    area.className = 'jp-OutputArea';
    const [hidden, other] = [document.createElement('div'), document.createElement('div')];
    area.append(hidden);
    document.body.append(area, other);
    widget.render({ model: made, el: hidden });
    area.remove();
    now.mockReturnValue(10_000);
    widget.render({ model: made, el: other });
    expect(hidden.querySelector('.jpd-run')).not.toBeNull();
    expect(other.querySelector('.jpd-run')).not.toBeNull();
  });
});
