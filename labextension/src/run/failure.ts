/** What went wrong: what to do, the first failing rank with the cell's lines, the others folded under it. */
import type { IContext } from './context';
import { button, el, icon, setLinkedText } from './dom';
import { bytes, capital, ranges } from './format';
import type { IFrame, IRankError, IRunInfo } from './source';

/** The report of a failed run. */
export function failureNode(errors: IRankError[], run: IRunInfo, context: IContext): HTMLElement {
  const { trans } = context;
  const [first, ...others] = errors;
  const node = el('section', {
    class: 'jpd-failure',
    'aria-label': trans('Why it failed')
  });
  const where = [
    first.host ? trans('host %1', first.host) : null,
    run.max_restarts || run.attempt ? trans('attempt %1', run.attempt + 1) : null,
    first.signal_name ?? (first.exit_code === null ? null : trans('exit code %1', first.exit_code))
  ].filter(text => text !== null);
  node.append(
    el(
      'div',
      { class: 'jpd-failure-head' },
      el('i', { class: 'jpd-shape', 'data-state': 'failed', 'aria-hidden': 'true' }),
      el(
        'b',
        {},
        run.world_size > 1 ? trans('Rank %1 failed first', first.rank) : trans('Rank 0 failed')
      ),
      el('span', { class: 'jpd-muted' }, where.join(' · '))
    ),
    el('div', { class: 'jpd-failure-what' }, what(first, trans)),
    ...hintNodes(first)
  );
  const cause = outOfMemory(first, context);
  if (cause) {
    node.appendChild(el('div', { class: 'jpd-muted' }, cause));
  }
  if (first.frames.length) {
    node.appendChild(framesNode(first.frames, trans));
  }
  if (first.text) {
    node.appendChild(
      el(
        'details',
        {},
        el('summary', {}, trans('Full traceback')),
        el('pre', { class: 'jpd-pre', tabindex: 0 }, first.text.trimEnd())
      )
    );
  }
  if (others.length) {
    node.appendChild(othersNode(others, trans));
  }
  return node;
}

/** The report of a run that failed without any rank that says why: what the backend or supervisor said. */
export function unexplainedNode(
  errors: IRankError[],
  run: IRunInfo,
  { trans, signal }: IContext,
  showLog: (launcher: string) => void
): HTMLElement {
  const launchers = run.launchers ?? [];
  const text = trans('Show the launcher’s log');
  const what = el('div', { class: 'jpd-failure-what' });
  setLinkedText(what, run.reason ?? trans('and left no word of it'));
  return el(
    'section',
    { class: 'jpd-failure', 'aria-label': trans('Why it failed') },
    el(
      'div',
      { class: 'jpd-failure-head' },
      el('i', { class: 'jpd-shape', 'data-state': 'failed', 'aria-hidden': 'true' }),
      el('b', {}, trans('The run failed')),
      el('span', { class: 'jpd-muted' }, trans('no rank says why'))
    ),
    what,
    errors.length ? othersNode(errors, trans) : null,
    launchers.length
      ? el(
          'div',
          {},
          button({ label: text, text }, () => showLog(launchers[0]), signal)
        )
      : el('div', { class: 'jpd-muted' }, trans('More may be in %1', `${run.path}/supervisor.log`))
  );
}

/** What to do about it, where that is known; what is not sure begins with "perhaps". */
function hintNodes({ hints = [] }: IRankError): HTMLElement[] {
  return hints.map(hint => {
    const text = el('span');
    setLinkedText(text, capital(hint));
    return el('div', { class: 'jpd-hint' }, el('span', { 'aria-hidden': 'true' }, '→'), text);
  });
}

function what(error: IRankError, trans: IContext['trans']): string {
  if (error.kind === 'exception') {
    return error.message ? `${error.type}: ${error.message}` : error.type;
  }
  if (error.kind === 'lost') {
    return capital(error.message);
  }
  return error.signal_name
    ? trans('ended by %1', error.signal_name)
    : trans('ended with exit code %1', error.exit_code ?? '?');
}

function outOfMemory(error: IRankError, { trans }: IContext): string | null {
  if (error.signal_name !== 'SIGKILL') {
    return null;
  }
  const text = trans('Something outside of it killed it: it may have run out of memory.');
  return error.peak_memory_bytes
    ? `${text} ${trans('Its memory had peaked at %1.', bytes(error.peak_memory_bytes))}`
    : text;
}

/** Frames, the cell's own ones marked; libraries' frames in between are folded. */
export function framesNode(frames: IFrame[], trans: IContext['trans']): HTMLElement {
  const list = el('ol', { class: 'jpd-frames' });
  const own = (frame: IFrame) => Boolean(frame.label) && frame.label !== frame.file;
  const shown = frames.filter(own);
  let hidden: IFrame[] = [];
  const flush = () => {
    if (hidden.length) {
      const inner = el('ol', { class: 'jpd-frames' }, ...hidden.map(f => frameNode(f, false)));
      const text =
        hidden.length === 1 ? trans('1 library frame') : trans('%1 library frames', hidden.length);
      list.appendChild(el('li', {}, el('details', {}, el('summary', {}, text), inner)));
      hidden = [];
    }
  };
  frames.forEach((frame, i) => {
    // The last one is where it happened, whosever it is.
    if (own(frame) || !shown.length || i === frames.length - 1) {
      flush();
      list.appendChild(frameNode(frame, own(frame)));
    } else {
      hidden.push(frame);
    }
  });
  flush();
  return list;
}

function frameNode(frame: IFrame, own: boolean): HTMLElement {
  const place = [frame.label || frame.file || '', frame.line === null ? '' : String(frame.line)];
  return el(
    'li',
    { class: own ? 'jpd-frame jpd-frame-own' : 'jpd-frame' },
    el(
      'span',
      {
        class: 'jpd-frame-place',
        title: frame.file || null,
        'data-file': frame.file,
        'data-label': frame.label,
        'data-line': frame.line
      },
      `${place.filter(Boolean).join(':')}${frame.function ? ` · ${frame.function}` : ''}`
    ),
    frame.source ? el('code', {}, frame.source.trim()) : null
  );
}

function othersNode(others: IRankError[], trans: IContext['trans']): HTMLElement {
  const kinds = new Map<string, IRankError[]>();
  for (const error of others) {
    // Ports, addresses and steps differ from rank to rank.
    const key = `${error.collateral} ${what(error, trans).replace(/0x[0-9a-f]+|\d+/g, '#')}`;
    kinds.set(key, [...(kinds.get(key) ?? []), error]);
  }
  const also = others.filter(error => !error.collateral).length;
  const parts = [
    also ? (also === 1 ? trans('1 other rank failed') : trans('%1 other ranks failed', also)) : '',
    others.length > also
      ? others.length - also === 1
        ? trans('1 rank ended because of it')
        : trans('%1 ranks ended because of it', others.length - also)
      : ''
  ].filter(Boolean);
  return el(
    'details',
    {},
    el('summary', {}, parts.join(' · ')),
    ...[...kinds.values()].map(group =>
      el(
        'details',
        { class: 'jpd-collateral' },
        el(
          'summary',
          {},
          el('span', { class: 'jpd-ranks' }, `[${ranges(group.map(error => error.rank))}]`),
          ` ${what(group[0], trans)}`
        ),
        el(
          'pre',
          { class: 'jpd-pre', tabindex: 0 },
          group[0].text.trimEnd() || what(group[0], trans)
        )
      )
    )
  );
}

export type NoticeKind = 'warning' | 'info';

/** One or two lines that ask for attention. */
export function notice(kind: NoticeKind, title: string, ...more: (Node | string)[]): HTMLElement {
  const heading = el('b');
  setLinkedText(heading, title);
  return el(
    'div',
    { class: `jpd-notice jpd-notice-${kind}` },
    kind === 'warning' ? icon('warning') : null,
    el('div', {}, heading, ...more.map(part => el('div', {}, part)))
  );
}
