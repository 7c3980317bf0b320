/** What somebody has chosen, kept by the browser. */

/** What is kept under a key; nothing where the browser keeps nothing, or another page has written there. */
export function remembered(key: string): Record<string, unknown> {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(key) ?? '{}');
    return typeof kept === 'object' && kept !== null ? { ...kept } : {};
  } catch {
    return {};
  }
}

export function remember(key: string, value: object): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // It is as wished, until the page is closed.
  }
}
