import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';
import { describe, expect, it, vi } from 'vitest';
import { RUN_MIME, RunRenderer } from '../../src/mime';
import { RunMissing } from '../../src/run/source';
import { english } from '../../src/run/trans';
import { FakeSource, runInfo } from './fakesource';

const WIDGET = 'application/vnd.jupyter.widget-view+json';

vi.mock('uplot', () => ({ default: class {} }));

class Summary extends Widget implements IRenderMime.IRenderer {
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.node.textContent = `summary: ${String(model.data['text/html'])}`;
  }
}

const model = (data: unknown) =>
  ({
    data: { [RUN_MIME]: data, 'text/html': '12 s, 4 ranks' }
  }) as unknown as IRenderMime.IMimeModel;

let kernelHasIt = true;

class WidgetView extends Widget implements IRenderMime.IRenderer {
  private _times = 0;
  async renderModel(): Promise<void> {
    this.node.textContent = 'Loading widget...';
    if (kernelHasIt) {
      this.node.innerHTML = `<div class="jpd-run">widget ${++this._times}</div>`;
    }
  }
}

function make(source: FakeSource) {
  const makeSource = vi.fn(async () => source);
  const createRenderer = vi.fn((type: string) =>
    type === WIDGET ? new WidgetView() : new Summary()
  );
  return { makeSource, renderer: new RunRenderer({ makeSource, trans: english, createRenderer }) };
}

describe('the renderer', () => {
  it('draws a run from the server, once', async () => {
    const { makeSource, renderer } = make(new FakeSource(runInfo(2)));
    await renderer.renderModel(model({ run: 'r-1' }));
    await renderer.renderModel(model({ run: 'r-1' }));
    expect(makeSource).toHaveBeenCalledOnce();
    expect(renderer.node.querySelectorAll('.jpd-run').length).toBe(1);
    renderer.dispose();
  });

  it('shows the saved summary under the reason when there is no such run', async () => {
    const source = new FakeSource(runInfo(2));
    source.failure = new RunMissing('no run', '/runs');
    const { renderer } = make(source);
    await renderer.renderModel(model({ run: 'r-1' }));
    await vi.waitFor(() => expect(renderer.node.textContent).toContain('summary: 12 s, 4 ranks'));
    expect(renderer.node.textContent).toMatch(
      /Saved with this notebook. Run r-1.*\/runs.*summary/s
    );
    renderer.dispose();
  });

  it('gives way to the widget of a kernel that has the run', async () => {
    const source = new FakeSource(runInfo(2));
    source.failure = new RunMissing('no run', '/runs');
    const { renderer } = make(source);
    await renderer.renderModel(model({ run: 'r-1' }));
    await vi.waitFor(() => expect(renderer.node.textContent).toContain('summary'));
    const withWidget = model({ run: 'r-1' });
    (withWidget.data as Record<string, unknown>)[WIDGET] = { model_id: 'm' };
    await renderer.renderModel(withWidget);
    await renderer.renderModel(withWidget);
    expect(renderer.node.textContent).toBe('widget 1');
    renderer.dispose();
  });

  it('shows what is saved where no kernel has the widget any more', async () => {
    kernelHasIt = false;
    const source = new FakeSource(runInfo(2));
    source.failure = new RunMissing('no run', '/runs');
    const { renderer } = make(source);
    const withWidget = model({ run: 'r-1' });
    (withWidget.data as Record<string, unknown>)[WIDGET] = { model_id: 'gone' };
    await renderer.renderModel(withWidget);
    await vi.waitFor(() => expect(renderer.node.textContent).toContain('summary'));
    const hidden = renderer.node.querySelector('.jpd-not-yet');
    expect(hidden?.textContent).toBe('Loading widget...');
    kernelHasIt = true;
    // A kernel that comes later, and has it after all, takes over.
    hidden!.innerHTML = '<div class="jpd-run">widget 1</div>';
    await vi.waitFor(() => expect(renderer.node.textContent).toBe('widget 1'));
    renderer.dispose();
  });

  it('survives an output that is not ours', async () => {
    const { renderer } = make(new FakeSource(runInfo(2)));
    await renderer.renderModel(model('nonsense'));
    expect(renderer.node.textContent).toContain('does not name a run');
    renderer.dispose();
  });
});
