/** Lines of a log by the level that a logger gave them, as an expression that the other side searches for. */

export type LogLevel = 'all' | 'warning' | 'error';

/** Capitals near the line's beginning, also behind a colour, or the letter that glog and absl begin with. */
const marked = (words: string, letters: string) =>
  `.{0,72}?(?:(?<![\\w-])|\\[[\\d;]*m)(?:${words})(?![\\w-])|[${letters}]\\d{4} \\d`;
const ERROR = `${marked('CRITICAL|FATAL|ERROR', 'EF')}|Traceback \\(most recent|[\\w.]*(?:Error|Exception)\\b`;
const LEVELS: Record<LogLevel, string> = {
  all: '',
  warning: `${marked('WARNING|WARN', 'W')}|[\\w./:<> -]*Warning: |${ERROR}`,
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
