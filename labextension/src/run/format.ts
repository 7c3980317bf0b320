/** Numbers, times and ranks as people read them. */

/** A sentence of the supervisor's, which begins in lower case. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** `0.8 s`, `12 s`, `3:07`, `1:02:03`. */
export function duration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 10) {
    return `${s.toFixed(1)} s`;
  }
  if (s < 60) {
    return `${Math.floor(s)} s`;
  }
  const whole = Math.floor(s);
  const two = (n: number) => String(n).padStart(2, '0');
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const rest = two(whole % 60);
  return hours ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
}

/** The time of day here, such as 09:05:07. */
export function clock(epoch_s: number): string {
  const time = new Date(1000 * epoch_s);
  const two = (n: number) => String(n).padStart(2, '0');
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':');
}

export function bytes(count: number): string {
  let value = count;
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    // With three digits more than that would be 1.00e+3.
    if (value < 999.5) {
      return `${unit === 'B' ? Math.round(value) : value.toPrecision(3)} ${unit}`;
    }
    value /= 1000;
  }
  return `${value.toPrecision(3)} TB`;
}

/** A metric's value in about four digits: `0.8123`, `1e6`, `1.5e-5`. Not `plain`: always with an exponent. */
export function value(x: number | null | undefined, digits = 4, plain = true): string {
  if (x === null || x === undefined || !Number.isFinite(x)) {
    return '–';
  }
  const size = Math.abs(x);
  if (!plain || (size !== 0 && (size < 1e-3 || size >= 1e6))) {
    return x.toExponential(digits - 2).replace(/(\.0+|(\.\d*?)0+)?e\+?/, '$2e');
  }
  return String(Number(x.toPrecision(digits)));
}

export function rate(perSecond: number): string {
  return perSecond >= 100 ? perSecond.toFixed(0) : String(Number(perSecond.toPrecision(3)));
}

/** `1,234,567`, and of a part three digits: the same in every locale, as the log's numbers are. */
export function count(n: number): string {
  const [whole, part] = String(Number(n.toFixed(3))).split('.');
  const shown = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return part === undefined ? shown : `${shown}.${part}`;
}

/** Ranks as ranges: [0,1,2,5] is `0-2,5`. */
export function ranges(ranks: readonly number[]): string {
  const sorted = [...ranks].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] <= sorted[j] + 1) {
      j++;
    }
    parts.push(sorted[i] === sorted[j] ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(',');
}

/** The ranks that `0-2,5` names, below `worldSize`; null when it cannot be read. */
export function parseRanges(text: string, worldSize: number): number[] | null {
  const found = new Set<number>();
  for (const part of text.split(',').map(p => p.trim())) {
    if (!part) {
      continue;
    }
    const match = /^(\d+)(?:\s*-\s*(\d+))?$/.exec(part);
    if (!match) {
      return null;
    }
    const last = Math.min(Number(match[2] ?? match[1]), worldSize - 1);
    for (let rank = Number(match[1]); rank <= last; rank++) {
      found.add(rank);
    }
  }
  return [...found].sort((a, b) => a - b);
}
