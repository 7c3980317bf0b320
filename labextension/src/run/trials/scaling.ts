/** How a cell scales: the speed-up by ranks as SVG, and a table of the sizes, measured and projected. */
import type { IScaling, IScalingRow } from '../../answers/runs';
import type { IContext } from '../context';
import { el, svg } from '../dom';
import { count, rate, value as shownNumber } from '../format';
import type { Trans } from '../trans';
import { BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, drawing, text, titled } from './drawings';

/** The speed-up with its range, the projection, and the ideal. Null before two sizes are measured. */
export function speedup({ rows }: IScaling, trans: Trans): SVGElement | null {
  const measured = rows.filter(row => !row.projected);
  if (measured.length < 2) {
    return null;
  }
  const last = rows[rows.length - 1];
  const high = Math.max(last.ranks / measured[0].ranks, ...rows.map(row => edge(row, row.high)));
  const x = (ranks: number) => LEFT + (ranks / last.ranks) * (WIDTH - LEFT - RIGHT);
  const y = (times: number) => HEIGHT - BOTTOM - (times / high) * (HEIGHT - TOP - BOTTOM);
  const path = (points: [number, number][], kind: string) =>
    svg('polyline', {
      points: points.map(([ranks, times]) => `${x(ranks)},${y(times)}`).join(' '),
      class: `jpd-way ${kind}`
    });
  const line = (shown: IScalingRow[], kind: string) =>
    path(
      shown.map(row => [row.ranks, row.speedup]),
      kind
    );
  const ideal = [measured[0], last].map(row => [row.ranks, row.ranks / measured[0].ranks]);
  const start = measured[measured.length - 1];
  return drawing(
    trans('Speed-up by ranks'),
    HEIGHT,
    svg('path', {
      d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}`,
      class: 'jpd-axis',
      fill: 'none'
    }),
    text(LEFT - 6, TOP + 4, shownNumber(high), 'end'),
    text(LEFT - 6, HEIGHT - BOTTOM + 4, '0', 'end'),
    path(ideal as [number, number][], 'jpd-way-ideal'),
    line([start, ...rows.filter(row => row.projected)], 'jpd-way-ahead'),
    line(measured, 'jpd-way-best'),
    ...rows.flatMap(row => [
      titled(
        svg('path', {
          d: `M${x(row.ranks)} ${y(edge(row, row.low))}V${y(edge(row, row.high))}`,
          class: row.projected ? 'jpd-way' : 'jpd-way jpd-way-best'
        }),
        told(row, trans)
      ),
      row.projected
        ? ''
        : titled(
            svg('circle', { cx: x(row.ranks), cy: y(row.speedup), r: 3, class: 'jpd-dot' }),
            told(row, trans)
          ),
      text(x(row.ranks), HEIGHT - 6, String(row.ranks), 'middle')
    ])
  );
}

/** The speed-up that an efficiency of this size means. */
function edge(row: IScalingRow, efficiency: number): number {
  return (row.speedup / row.efficiency) * efficiency;
}

function told(row: IScalingRow, trans: Trans): string {
  const kind = row.projected ? trans('projection') : trans('measured');
  return `${trans('%1 ranks', row.ranks)} (${kind}): ${row.speedup.toFixed(2)}, ${percent(row.efficiency)}`;
}

function percent(part: number): string {
  return `${Math.round(100 * part)} %`;
}

/** The sizes as a table, and the laws below it. */
export function scalingTable(scaling: IScaling, { trans }: IContext): HTMLElement {
  const { rows, laws, unit } = scaling;
  const priced = rows.some(row => row.usd_per_hour !== null);
  const heads = [
    trans('Ranks'),
    unit,
    trans('Speed-up'),
    trans('Efficiency'),
    trans('Range'),
    trans('Limited by'),
    ...(priced ? [trans('USD/h'), trans('USD per million')] : [])
  ];
  const cells = (row: IScalingRow) => [
    row.projected ? trans('%1 (projection)', row.ranks) : String(row.ranks),
    row.throughput < 1000 ? rate(row.throughput) : count(Math.round(row.throughput)),
    row.speedup.toFixed(2),
    percent(row.efficiency),
    `${percent(row.low)} – ${percent(row.high)}`,
    row.why ? `${row.limit} (${row.why})` : row.limit,
    ...(priced ? [shownNumber(row.usd_per_hour), shownNumber(row.usd_per_million)] : [])
  ];
  const body = rows.map(row =>
    el(
      'tr',
      row.projected ? { class: 'jpd-muted' } : {},
      ...cells(row).map(cell => el('td', {}, cell))
    )
  );
  const fitted = laws.map(law =>
    law.error === null
      ? trans('%1: %2 serial', law.name, percent(law.serial))
      : trans('%1: %2 serial, error %3', law.name, percent(law.serial), percent(law.error))
  );
  const told = [
    ...fitted,
    scaling.best
      ? trans('the projection follows %1', scaling.best)
      : trans('neither law fits, so there is no projection'),
    ...(unit === 'steps/s' ? [trans('each step of a rank counts as the same work')] : [])
  ];
  return el(
    'div',
    { class: 'jpd-scaling' },
    el(
      'div',
      { class: 'jpd-scroll', tabindex: 0, role: 'region', 'aria-label': trans('Scaling') },
      el(
        'table',
        { class: 'jpd-table' },
        el('thead', {}, el('tr', {}, ...heads.map(head => el('th', {}, head)))),
        el('tbody', {}, ...body)
      )
    ),
    el('div', { class: 'jpd-muted' }, laws.length ? told.join(' · ') : '')
  );
}
