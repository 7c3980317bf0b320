/** Lines of a log by the level that a logger gave them, as an expression that the other side searches for. */

export type LogLevel = 'all' | 'warning' | 'error';

/** Capitals near the line's beginning, also behind a colour, or the letter that glog and absl begin with.
 *
 * What stands before a word is looked at behind it: Python finds a word at once, but not an alternative. */
const marked = (letters: string, ...words: string[]) =>
  [
    `[${letters}]\\d{4} \\d`,
    ...words.map(word => `.{0,72}${word}(?![\\w-])(?:(?<![\\w-]${word})|(?<=[\\d[]m${word}))`)
  ].join('|');
const ERROR = `${marked('EF', 'CRITICAL', 'FATAL', 'ERROR')}|Traceback \\(most recent|[\\w.]*(?:Error|Exception)\\b`;
const LEVELS: Record<LogLevel, string> = {
  all: '',
  warning: `${marked('W', 'WARNING', 'WARN')}|[\\w./:<> -]*Warning: |${ERROR}`,
  error: ERROR
};

interface IAsked {
  query: string;
  regex: boolean;
  case: boolean;
}

/** What is searched for, so that it is found in lines of the level alone; an empty query is any text. */
export function ofLevel(level: LogLevel, asked: IAsked): IAsked {
  if (level === 'all') {
    return asked;
  }
  const text = asked.regex ? asked.query : escaped(asked.query);
  const flags = asked.case ? '' : 'i';
  const query = `^(?=${LEVELS[level]})${text && `(?=.*?(?${flags}:${text}))`}`;
  return { query, regex: true, case: true };
}

/** A text as an expression that matches it. */
export function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
