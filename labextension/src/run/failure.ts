/** Why a run failed: the card, which is the same everywhere, and folded under it all that is longer. */
import type { IContext } from './context';
import { button, el, icon, setLinkedText } from './dom';
import { capital, ranges } from './format';
import type { IFailureCard, IFrame, IRankError } from './source';

/** A card and the frames under it are open where they have at most so many lines. */
const MOST_LINES = 12;
/** Where libraries are: what stands behind it says which one. */
const LIBRARY = /^.*\/(?:site|dist)-packages\/|^.*\/lib\/(?=python3)/;
/** What Python writes above a traceback. */
const TRACEBACK = 'Traceback (most recent call last)';

/** The ways from a card into the logs. */
export interface ILogLeads {
  /** The name of a launcher's log, if there is one. */
  launcher: () => string | undefined;
  show: (launcher: string) => void;
  /** Go to the last line with a text in a rank's log. */
  find: (rank: number, text: string) => void;
}

/** The card of a run that failed or was stopped. */
export function failureNode(
  card: IFailureCard,
  errors: IRankError[],
  context: IContext,
  logs?: ILogLeads
): HTMLElement {
  const { trans, signal } = context;
  const root = errors.length && !errors[0].collateral ? errors[0] : null;
  const others = root ? errors.slice(1) : errors;
  const lines = [...card.causes, ...card.places, ...(others.length ? [] : card.others)];
  const what = el('div', { class: 'jpd-failure-what' });
  setLinkedText(what, card.what);
  const node = el(
    'section',
    { class: 'jpd-failure', 'aria-label': trans('Why it failed') },
    el(
      'div',
      { class: 'jpd-failure-head' },
      el('i', { class: 'jpd-shape', 'data-state': 'failed', 'aria-hidden': 'true' }),
      el('b', {}, capital(card.title)),
      el('span', { class: 'jpd-muted' }, card.about)
    ),
    what,
    ...card.hints.map(hintNode),
    ...lines.map(text => el('div', { class: 'jpd-failure-line' }, capital(text)))
  );
  if (root) {
    node.append(...tracebackNodes(root, lines.length + card.hints.length + 2, trans));
  }
  if (others.length) {
    node.appendChild(othersNode(others, trans));
  }
  for (const part of card.parts) {
    // The view itself shows logs, stacks, and the errors of ranks.
    if (part.kind === 'reason' || part.kind === 'launcher') {
      node.appendChild(folded(part.title, el('pre', { class: 'jpd-pre', tabindex: 0 }, part.text)));
    }
  }
  const launcher = root ? undefined : logs?.launcher();
  const lead = (text: string, go: () => void) =>
    node.appendChild(el('div', {}, button({ label: text, text }, go, signal)));
  if (logs && root?.kind === 'exception') {
    lead(trans('Go to the traceback in the log'), () => logs.find(root.rank, TRACEBACK));
  } else if (logs && launcher !== undefined) {
    lead(trans('Show the launcher’s log'), () => logs.show(launcher));
  } else if (!root) {
    node.appendChild(el('div', { class: 'jpd-muted' }, card.files));
  }
  return node;
}

function folded(title: string, content: HTMLElement, open = false): HTMLElement {
  return el('details', { open }, el('summary', {}, title), content);
}

/** The calls, open where they are few, and the whole text. */
function tracebackNodes(root: IRankError, above: number, trans: IContext['trans']): HTMLElement[] {
  const nodes = [];
  if (root.frames.length) {
    const list = framesNode(root.frames, trans);
    const open = above + list.childElementCount <= MOST_LINES;
    nodes.push(folded(trans('Calls that led to the error'), list, open));
  }
  if (root.text) {
    const text = el('pre', { class: 'jpd-pre', tabindex: 0 }, root.text.trimEnd());
    nodes.push(folded(trans('Full traceback'), text));
  }
  return nodes;
}

/** What to do about it, where that is known; what is not sure begins with "perhaps". */
function hintNode(hint: string): HTMLElement {
  const text = el('span');
  setLinkedText(text, capital(hint));
  return el('div', { class: 'jpd-hint' }, el('span', { 'aria-hidden': 'true' }, '→'), text);
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
  const place = [
    (frame.label || frame.file || '').replace(LIBRARY, ''),
    frame.line === null ? '' : String(frame.line)
  ];
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
      // It may be broken behind the parts of a path, not within words.
      ...`${place.filter(Boolean).join(':')}${frame.function ? ` · ${frame.function}` : ''}`
        .split(/(?<=\/)/)
        .flatMap(part => [part, el('wbr')])
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
