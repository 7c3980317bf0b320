/** What is said of a log: its name, what is new in it, and why it is empty. */
import type { IContext } from './context';
import { count } from './format';
import type { LogOf } from './source';
import type { Trans } from './trans';

/** What a log is called where it stands alone. */
export function logLabel(of: LogOf, context: IContext): string {
  const { trans } = context;
  return of === null
    ? trans('Log of all ranks')
    : typeof of === 'number'
      ? trans('Log of rank %1', of)
      : trans('Log: %1', logName(of, context));
}

/** A rank or launcher as a person calls it. */
export function logName(of: number | string, { trans }: IContext): string {
  if (typeof of === 'number') {
    return trans('Rank %1', of);
  }
  const host = /^launcher-(.+)$/.exec(of)?.[1];
  return host === undefined ? trans('Launcher') : trans('Launcher on %1', host);
}

/** What leads to the end of a log that has grown by so many lines. */
export function newsText(lines: number, trans: Trans): string {
  return lines > 1
    ? trans('%1 new lines', count(lines))
    : lines === 1
      ? trans('1 new line')
      : trans('To the end');
}

/** Why there is no line. `only`: of those that match a search. */
export function emptyText(
  error: string | null,
  only: boolean,
  over: boolean,
  trans: Trans
): string {
  return error
    ? trans('The log cannot be read: %1', error)
    : only
      ? trans('No line matches')
      : over
        ? trans('Nothing was printed')
        : trans('Nothing printed yet');
}
