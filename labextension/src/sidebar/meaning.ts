/** What a form means as it stands, asked of the server a moment after each change. */
import * as React from 'react';
import type { IFormMeaning } from '../model/server';

const PAUSE_MS = 250;

export interface IMeaning {
  /** The latest answer; it may be about what the form said a moment ago. */
  readonly latest: IFormMeaning | null;
  /** The latest line that there was: it stays, dimmed, while a field is being typed into. */
  readonly line: string | null;
  /** Whether the line is that of the form as it stands. */
  readonly current: boolean;
  /** Ask now. Rejects when the server cannot be asked. */
  ask(): Promise<IFormMeaning>;
}

type Ask = (backend: string, options: Record<string, unknown>) => Promise<IFormMeaning>;

export function useMeaning(
  ask: Ask,
  backend: string,
  options: Record<string, unknown>,
  on: boolean
): IMeaning {
  const key = JSON.stringify([backend, options]);
  const [known, setKnown] = React.useState<{ key: string; answer: IFormMeaning } | null>(null);
  const [line, setLine] = React.useState<{ backend: string; text: string } | null>(null);
  const wanted = React.useRef(key);
  wanted.current = key;
  const first = React.useRef(true);

  const now = async () => {
    const asked = key;
    const answer = await ask(backend, options);
    // Whoever has typed on is no longer interested.
    if (wanted.current === asked) {
      setKnown({ key: asked, answer });
      if (answer.line !== null) {
        setLine({ backend, text: answer.line });
      }
    }
    return answer;
  };

  React.useEffect(() => {
    if (!on) {
      return;
    }
    const timer = setTimeout(
      // Without an answer nothing is said to be wrong; saving asks again, and tells why it cannot.
      () => void now().catch(() => undefined),
      first.current ? 0 : PAUSE_MS
    );
    first.current = false;
    return () => clearTimeout(timer);
  }, [key, on]);
  React.useEffect(
    () => () => {
      wanted.current = '';
    },
    []
  );

  return {
    latest: known?.answer ?? null,
    line: line?.backend === backend ? line.text : null,
    current: known?.key === key && known.answer.line !== null,
    ask: now
  };
}
