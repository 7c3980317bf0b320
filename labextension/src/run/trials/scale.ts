/** Where a parameter's value stands between 0 and 1, for axes of parameters. */
import type { IParameter } from '../../answers/runs';
import { value as shownNumber } from '../format';

/** 0 to 1 along the parameter's axis; null for a value that has no place there. */
export function place(parameter: IParameter, value: unknown): number | null {
  if (parameter.kind === 'choice') {
    const index = parameter.values.findIndex(one => one === value);
    return index < 0 ? null : (index + 0.5) / parameter.values.length;
  }
  const { low, high, log } = parameter;
  if (typeof value !== 'number' || low === null || high === null) {
    return null;
  }
  const part = log
    ? Math.log(value / low) / Math.log(high / low)
    : (value - low) / (high - low || 1);
  return Number.isFinite(part) ? Math.min(1, Math.max(0, part)) : null;
}

/** A parameter's value as people read it. */
export function shown(value: unknown): string {
  if (typeof value === 'number') {
    return shownNumber(value);
  }
  return value === null || value === undefined ? 'None' : String(value);
}

/** `lr=0.01, kind=a`. */
export function shownAll(parameters: Record<string, unknown>): string {
  return Object.entries(parameters)
    .map(([name, value]) => `${name}=${shown(value)}`)
    .join(', ');
}

/** What stands at the ends of an axis, or at each of its choices: place and text. */
export function ticks(parameter: IParameter): [number, string][] {
  if (parameter.kind === 'choice') {
    return parameter.values.map((one, index) => [
      (index + 0.5) / parameter.values.length,
      shown(one)
    ]);
  }
  return [
    [0, shown(parameter.low)],
    [1, shown(parameter.high)]
  ];
}
