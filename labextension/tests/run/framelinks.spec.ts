import { afterEach, describe, expect, it, vi } from 'vitest';
import type { IPlaces } from '../../src/run/framelinks';
import { RunView } from '../../src/run/view';
import { FakeSource, runInfo } from './fakesource';

let view: RunView | null = null;

afterEach(() => {
  view?.dispose();
  view = null;
});

describe('the frames of a traceback', () => {
  it('are links where the host knows a way, for the keyboard as well', async () => {
    const source = new FakeSource(runInfo(1, 'failed', { label: 'In[7]' }));
    const frame = (file: string, label: string, line: number) => ({
      file,
      label,
      line,
      function: 'f',
      source: 'x()'
    });
    source.errorList = [
      {
        rank: 0,
        kind: 'exception',
        type: 'ValueError',
        message: 'bad',
        text: 'ValueError: bad',
        frames: [
          frame('/tmp/1.py', 'In[7]', 3),
          frame('/tmp/2.py', 'In[5]', 2),
          frame('/lib/far.py', '/lib/far.py', 9)
        ],
        exit_code: 1,
        signal_name: null,
        peak_memory_bytes: null,
        collateral: false,
        host: null
      }
    ];
    source.cardTold = {
      title: 'rank 0 failed',
      about: '',
      what: 'ValueError: bad',
      hints: [],
      causes: [],
      places: [],
      others: [],
      files: '',
      parts: []
    };
    const go = vi.fn<IPlaces['go']>(async () => undefined);
    const places: IPlaces = { leads: place => place.label.startsWith('In['), go };
    view = new RunView({ source, places });
    document.body.appendChild(view.node);
    const { node } = view;
    await vi.waitFor(() => expect(node.querySelectorAll('[role=link]').length).toBe(2));
    const [own, other] = node.querySelectorAll<HTMLElement>('[role=link]');
    own.click();
    expect(go.mock.calls[0]).toEqual([{ file: '/tmp/1.py', label: 'In[7]', line: 3 }, own, true]);
    other.focus();
    expect(document.activeElement).toBe(other);
    go.mockRejectedValueOnce(new Error('No such cell.'));
    other.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    expect(go.mock.calls[1][2]).toBe(false);
    await vi.waitFor(() =>
      expect(node.querySelector('[role=status]')?.textContent).toBe('No such cell.')
    );
  });
});
