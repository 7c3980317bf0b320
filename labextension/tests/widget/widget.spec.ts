import { afterEach, describe, expect, it, vi } from 'vitest';
import widget from '../../src/widget';

function model(run: string) {
  const off = vi.fn();
  return {
    get: (name: string) => (name === 'run' ? run : name === 'code' ? 'IPY_MODEL_c' : {}),
    on: () => {},
    off,
    send: vi.fn()
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
