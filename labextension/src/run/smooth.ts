/** Exponential smoothing of a curve with gaps. */

type Values = readonly (number | null | undefined)[];

/** The moving average with weight `alpha` (0: none, towards 1: more) on what came before.
 *
 * Unbiased: the first values count as much as those after them. Gaps stay, and are not counted. */
export function smooth(values: Values, alpha: number): (number | null | undefined)[] {
  if (alpha <= 0) {
    return values.slice();
  }
  let average = 0;
  let weight = 0;
  return values.map(x => {
    if (x === null || x === undefined) {
      return x;
    }
    average = alpha * average + (1 - alpha) * x;
    weight = alpha * weight + (1 - alpha);
    return average / weight;
  });
}
