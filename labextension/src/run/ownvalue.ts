/** Values by names that people choose: a metric may be called `constructor`, or `toString`. */

/** The value of a name; undefined where there is none, whatever other objects have by that name. */
export function ownValue<T>(
  values: Readonly<Record<string, T>> | null | undefined,
  name: string
): T | undefined {
  return values && Object.hasOwn(values, name) ? values[name] : undefined;
}
