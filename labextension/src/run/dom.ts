/** Make elements, without a framework. Text is always a text node: nothing here parses HTML. */

type Child = Node | string | null | false | undefined;
type Attributes = Record<string, string | number | boolean | null | undefined>;

/** An element. `false`, null and undefined leave an attribute out, `true` sets it empty. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  append(node, children);
  return node;
}

export function append(node: Node, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      node.appendChild(typeof child === 'string' ? document.createTextNode(child) : child);
    }
  }
}

/** Set text only where it differs, so that a screen reader and a selection are left in peace. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

/** Text in which web addresses are links. Each is shown as it stands: it leads nowhere else than it says. */
export function setLinkedText(node: Element, text: string): void {
  if (node.textContent === text) {
    return;
  }
  const parts = text
    .split(/(https?:\/\/[^\s;,"'<>]+)/)
    .map((part, place) =>
      place % 2 ? el('a', { href: part, target: '_blank', rel: 'noopener noreferrer' }, part) : part
    );
  node.replaceChildren(...parts);
}

export function setAttribute(node: Element, name: string, value: string | null): void {
  if (value === null) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

const PATHS = {
  close:
    'M4.3 3.2 8 6.900l3.700-3.700 1.100 1.100L9.100 8l3.700 3.700-1.100 1.100L8 9.100l-3.700 3.700-1.100-1.100L6.900 8 3.200 4.300z',
  stop: 'M4 4h8v8H4z',
  open: 'M9 2h5v5h-1.6V4.7L8.6 8.5 7.5 7.4l3.8-3.8H9zM3 4h4v1.5H4.5v6h6V9H12v4H3z',
  up: 'M8 5 13 10.2 11.8 11.4 8 7.5 4.2 11.4 3 10.2z',
  down: 'M8 11 3 5.8 4.2 4.6 8 8.5l3.8-3.9L13 5.8z',
  copy: 'M5 2h8v9h-2v3H3V5h2zm1.5 1.5V5H11v4.500h.5v-6zM4.500 6.500v6h5v-6z',
  download:
    'M7.200 2h1.600v6.200l2.300-2.300 1.100 1.100L8 11.200 3.800 7l1.100-1.100 2.300 2.300zM3 12.500h10V14H3z',
  reset:
    'M8 3a5 5 0 1 1-4.900 6h1.600A3.500 3.500 0 1 0 5.200 5.800L7 7.500H2.500V3l1.600 1.700A5 5 0 0 1 8 3z',
  image:
    'M2 3h12v10H2zm1.500 1.500v5l2.500-2.500 2.500 2.500 2-2 2 2v-5zM10 5.200a1.100 1.100 0 1 1 0 2.200 1.100 1.100 0 0 1 0-2.200z',
  enlarge:
    'M2.500 2.500h4V4H5.100l2.200 2.200-1.100 1.100L4 5.100v1.400H2.500zM9.500 13.500V12h1.400L8.700 9.800l1.100-1.100L12 10.900V9.500h1.500v4z',
  pin: 'M5 1.500h6V3l-1 .500v3.500l2 2v1.500H8.800V14L8 15l-.800-1V10.500H4V9l2-2V3.500L5 3z',
  range: 'M8 1l3 3H9v8h2l-3 3-3-3h2V4H5zM2 1h12v1H2zM2 14h12v1H2z',
  table: 'M2 3h12v10H2zm1.500 3.500v2H7v-2zm5 0v2h4v-2zm-5 3.500v1.500H7V10zm5 0v1.500h4V10z',
  pen: 'M11.3 1.9 14.1 4.7 5.6 13.200 2 14l.8-3.6zM4.100 11.100l-.3 1.100 1.100-.3 6.900-6.900-.800-.800z',
  warning: 'M8 1.500 15 14H1zM7.200 6v4h1.600V6zm0 5v1.600h1.600V11z'
};

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  const path = svg('path', { d: PATHS[name], fill: 'currentColor', 'fill-rule': 'evenodd' });
  return svg('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true', class: 'jpd-icon' }, path);
}

/** An element of a drawing. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number>,
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, String(value));
  }
  node.append(...children);
  return node;
}

/** A button; without a visible text, `label` is its name and its tooltip. */
export function button(
  options: { label: string; icon?: IconName; text?: string; class?: string },
  onClick: () => void,
  signal: AbortSignal
): HTMLButtonElement {
  const { label, text } = options;
  const node = el(
    'button',
    {
      type: 'button',
      class: `jpd-button ${options.class ?? ''}`.trim(),
      'aria-label': text === label ? null : label,
      title: text === label ? null : label
    },
    options.icon ? icon(options.icon) : null,
    text ?? null
  );
  node.addEventListener('click', onClick, { signal });
  return node;
}

/** A button that is on or off. Without a `label` its text is its name, and `title` says more. */
export function toggle(
  options: { text: Child; label?: string; title?: string; on?: boolean; class?: string },
  changed: (on: boolean) => void,
  signal: AbortSignal
): HTMLButtonElement {
  const { text, label, title = label, on = false } = options;
  const node = el(
    'button',
    {
      type: 'button',
      class: `jpd-toggle ${options.class ?? ''}`.trim(),
      'aria-pressed': String(on),
      'aria-label': label,
      title
    },
    text
  );
  const turn = () => {
    const turned = node.getAttribute('aria-pressed') !== 'true';
    setAttribute(node, 'aria-pressed', String(turned));
    changed(turned);
  };
  node.addEventListener('click', turn, { signal });
  return node;
}

/** Offer a file that is made here. */
export function saveFile(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = el('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Arrow keys, Home and End move the focus among `items`, of which one is in the tab order. */
export function roving(box: HTMLElement, items: () => HTMLElement[], signal: AbortSignal): void {
  box.addEventListener(
    'keydown',
    event => {
      const all = items();
      const now = all.indexOf(event.target as HTMLElement);
      const next = now < 0 ? -1 : rovingIndex(event.key, now, all.length);
      if (next < 0) {
        return;
      }
      event.preventDefault();
      all[now].tabIndex = -1;
      all[next].tabIndex = 0;
      all[next].focus();
    },
    { signal }
  );
}

function rovingIndex(key: string, now: number, count: number): number {
  switch (key) {
    case 'ArrowRight':
    case 'ArrowDown':
      return Math.min(count - 1, now + 1);
    case 'ArrowLeft':
    case 'ArrowUp':
      return Math.max(0, now - 1);
    case 'Home':
      return 0;
    case 'End':
      return count - 1;
    default:
      return -1;
  }
}
