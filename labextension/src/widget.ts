/** The run view as an anywidget, fed by the kernel, where the labextension is missing. */
import { button, el } from './run/dom';
import { english } from './run/trans';
import { RunView } from './run/view';
import type { IModel } from './widget/model';
import { KernelRunSource } from './widget/source';

interface IShown {
  node: HTMLElement;
  place: HTMLElement;
  since: number;
  dispose: () => void;
}

/** Every view that is shown, by the widget that it is a view of. */
const shown = new Map<string, Set<IShown>>();
const MOUNTED_MS = 500;

/** anywidget calls this for each place that shows the widget; what is returned cleans up. */
function render({ model, el }: { model: IModel; el: HTMLElement }): () => void {
  const widget = `${String(model.get('kernel'))} ${String(model.get('run'))}`;
  const views = shown.get(widget) ?? new Set();
  shown.set(widget, views);
  // JupyterLab renders an output that was updated once more, and merely wipes what was there. The view
  // goes on in the new place: with its chosen rank, its search, its zoom.
  const view = [...views].find(isWiped) ?? makeView(model);
  views.add(view);
  view.place = el;
  view.since = performance.now();
  el.classList.add('jpd-widget');
  el.replaceChildren(view.node);
  return () => {
    if (view.place === el) {
      views.delete(view);
      view.dispose();
    }
  };
}

/** Whether the place was taken out of its output; one that is scrolled out of sight keeps it. */
function isWiped({ place, since }: IShown): boolean {
  const mounted = performance.now() - since > MOUNTED_MS;
  return mounted && !place.isConnected && !place.closest('.jp-OutputArea');
}

function makeView(model: IModel): IShown {
  const source = new KernelRunSource(model, english);
  const view = new RunView({ source, trans: english, openRun: id => void open(id) });
  const refused = document.createElement('div');
  refused.className = 'jpd-refused';
  refused.setAttribute('role', 'alert');
  refused.hidden = true;
  source.onRefused = why => {
    refused.hidden = why === null;
    refused.textContent = why;
  };
  const node = document.createElement('div');
  node.append(refused, view.node);
  const abort = new AbortController();
  const { signal } = abort;
  let clicks = 0;
  // A trial takes the place of its tuning run, until somebody goes back. The last click counts.
  const open = async (id: string) => {
    const click = ++clicks;
    try {
      const opened = await model.widget_manager.get_model(await source.open(id));
      if (signal.aborted || click !== clicks) {
        return;
      }
      const trial = makeView(opened);
      const inner = el('div');
      const close = () => {
        trial.dispose();
        inner.remove();
        view.node.hidden = false;
      };
      const label = english('Back to run %1', source.id);
      inner.append(button({ label, text: `← ${label}` }, close, signal), trial.node);
      signal.addEventListener('abort', close);
      view.node.hidden = true;
      node.append(inner);
    } catch (error) {
      source.onRefused(error instanceof Error ? error.message : String(error));
    }
  };
  signal.addEventListener('abort', () => {
    view.dispose();
    source.dispose();
  });
  return { node, place: node, since: 0, dispose: () => abort.abort() };
}

export default { render };
