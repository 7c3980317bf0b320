/** A drawn chart as a picture to save: the plot below the metric's name. */
import type uPlot from 'uplot';
import { el } from './dom';
import { cssVariable } from './theme';

/** null where the browser gives no canvas to draw on. `root`: from where colours are read. */
export function picture(plot: uPlot, name: string, root: HTMLElement): HTMLCanvasElement | null {
  const drawn = plot.ctx.canvas;
  const ratio = drawn.width / plot.width;
  const head = Math.round(22 * ratio);
  const canvas = el('canvas', { width: drawn.width, height: drawn.height + head });
  const context = canvas.getContext('2d');
  if (!context) {
    return null;
  }
  context.fillStyle = cssVariable(root, '--jpd-page') || '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = getComputedStyle(root).color;
  context.font = `600 ${Math.round(12 * ratio)}px ${cssVariable(root, '--jpd-font') || 'sans-serif'}`;
  context.fillText(name, 8 * ratio, 16 * ratio);
  context.drawImage(drawn, 0, head);
  return canvas;
}
