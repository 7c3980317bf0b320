/** How a metric is plotted: axes, colours, widths, and what the plot tells of the pointer. */
import uPlot from 'uplot';
import { exact, INCREMENTS, logRange, logTicks, tickTexts, timeText } from './ticks';
import type { Axis } from './xaxis';
import type { IChartData, ILine } from './series';
import { cssVariable, rankVariable } from './theme';

type Ends = [number | null, number | null];

export interface IPlotWishes {
  width: number;
  height: number;
  /** Whether values are drawn on a logarithmic axis. */
  log: boolean;
  /** What values are drawn over. */
  axis: Axis;
  /** What is drawn of the values, given what the data take; above the `floor`. */
  within: (data: Ends, floor?: number) => Ends;
  /** Where attempts begin: step and text. Asked at each drawing. */
  marks?: () => readonly { step: number; text: string }[];
  /** Charts with the same key follow each other's pointer. */
  syncKey: string;
  /** The pointer has moved. */
  pointed: (plot: uPlot) => void;
  /** The user has marked some steps. */
  selected: (plot: uPlot) => void;
  /** The user wants to see all steps again. */
  unzoomed: () => void;
}

/** The colour of a rank's line, or of the mean of all ranks. */
export function lineColour(root: HTMLElement, line: ILine): string {
  return typeof line.rank === 'number'
    ? cssVariable(root, rankVariable(line.rank))
    : cssVariable(root, '--jpd-mean');
}

/** uPlot's options for the lines of a chart. `root`: from where colours are read. */
export function plotOptions(
  root: HTMLElement,
  data: IChartData,
  wishes: IPlotWishes
): uPlot.Options {
  const { width, height, log, syncKey, pointed, selected, unzoomed, within } = wishes;
  const text = cssVariable(root, '--jpd-axis') || '#666';
  const grid = { stroke: cssVariable(root, '--jpd-grid') || '#8883', width: 1 };
  const font = `10px ${cssVariable(root, '--jpd-font') || 'sans-serif'}`;
  const axis = { stroke: text, grid, font, ticks: { ...grid, size: 4 }, gap: 3 };
  const { lines, xs } = data;
  const mean = cssVariable(root, '--jpd-mean');
  const [min, max] = ['min', 'max'].map(part => lines.findIndex(l => l.rank === part) + 1);
  const many = lines.filter(line => !line.raw).length > 12;
  const alone = xs.length === 1;
  // A single step has no line, and no band.
  const points = (edge: boolean): uPlot.Series.Points =>
    alone
      ? { show: true, size: 5, ...(edge ? { stroke: mean } : {}) }
      : edge || many
        ? { show: false }
        : { size: 4 };
  return {
    width,
    height,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    cursor: {
      drag: { x: true, y: false, setScale: false },
      points: { size: 5 },
      sync: { key: syncKey, setSeries: false },
      focus: { prox: 24 },
      // Here and not on each move, so that a click resets nothing.
      bind: {
        dblclick: () => () => {
          unzoomed();
          return null;
        }
      }
    },
    focus: { alpha: many ? 0.25 : 1 },
    scales: {
      x: { time: false },
      y: {
        distr: log ? 3 : 1,
        range: (_u, min, max) =>
          log ? within(logRange(min, max), 0) : within(linearRange(min, max))
      }
    },
    axes: [
      {
        ...axis,
        size: 22,
        space: 46,
        ...INCREMENTS[wishes.axis],
        values: (_u, ticks) => ticks.map(wishes.axis === 'time' ? timeText : exact)
      },
      {
        ...axis,
        size: axisSize,
        splits: log ? (_u, _axis, min, max) => logTicks(min, max) : undefined,
        filter: (_u, ticks) => ticks,
        values: (_u, ticks) => tickTexts(ticks)
      }
    ],
    bands:
      min && max
        ? [{ series: [max, min], fill: cssVariable(root, '--jpd-band') || '#8884' }]
        : undefined,
    series: [
      {},
      ...lines.map(line => {
        const edge = line.rank === 'min' || line.rank === 'max';
        return {
          stroke: edge ? undefined : lineColour(root, line),
          width: edge ? 0 : line.rank === 'mean' ? 2 : many || line.rank === 'some' ? 1 : 1.5,
          dash: line.rank === 'some' ? [4, 4] : undefined,
          alpha: line.raw ? 0.25 : 1,
          points: points(edge)
        };
      })
    ],
    hooks: {
      draw: [plot => drawMarks(plot, wishes.marks?.() ?? [], text, font)],
      setCursor: [pointed],
      setSelect: [selected]
    }
  };
}

/** A dashed line at each mark, with its text at the top. */
function drawMarks(
  plot: uPlot,
  marks: readonly { step: number; text: string }[],
  colour: string,
  font: string
): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.font = font.replace(/^\d+/, size => String(Number(size) * uPlot.pxRatio));
  ctx.textAlign = 'left';
  ctx.textBaseline = 'top';
  ctx.setLineDash([3, 3].map(part => part * uPlot.pxRatio));
  for (const { step, text } of marks) {
    const x = Math.round(plot.valToPos(step, 'x', true));
    if (x >= bbox.left && x <= bbox.left + bbox.width) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(text, x + 3 * uPlot.pxRatio, bbox.top);
    }
  }
  ctx.restore();
}

function linearRange(min: number | null, max: number | null): Ends {
  if (min === null || max === null) {
    return [null, null];
  }
  return min === 0 && max === 0 ? [0, 1] : uPlot.rangeNum(min, max, 0.1, true);
}

function axisSize(_plot: uPlot, values: string[] | null): number {
  const longest = Math.max(2, ...(values ?? []).map(text => text.length));
  return 14 + 6 * longest;
}
