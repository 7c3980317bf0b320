/** A metric's points as comma-separated values (RFC 4180). */
import type { ICurve } from './source';

export function curveCsv(curve: ICurve): string {
  const rows = [`rank,step,${field(curve.name)},time`];
  for (const { rank, steps, values, times, special = [] } of curve.ranks) {
    const named = new Map(special.map(({ step, value }) => [step, value]));
    steps.forEach((step, i) => {
      rows.push(`${rank},${step},${values[i] ?? named.get(step) ?? ''},${times[i] ?? ''}`);
    });
  }
  if (!curve.ranks.length && curve.band) {
    rows[0] = `step,${['mean', 'min', 'max'].map(part => field(`${curve.name} ${part}`)).join(',')}`;
    const { steps, mean, min, max } = curve.band;
    steps.forEach((step, i) => {
      rows.push(`${step},${mean[i] ?? ''},${min[i] ?? ''},${max[i] ?? ''}`);
    });
  }
  return rows.join('\r\n') + '\r\n';
}

function field(text: string): string {
  // A spreadsheet takes a leading = + - @ for a formula.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
