/** Which elements are in sight. One that was not looked at yet counts as if it were. */
export class ElementsInSight {
  private readonly _away = new Set<Element>();
  private readonly _observer: IntersectionObserver;

  /** `came`: something has come into sight. */
  constructor(signal: AbortSignal, came: () => void) {
    this._observer = new IntersectionObserver(entries => {
      let more = false;
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) {
          more = this._away.delete(target) || more;
        } else {
          this._away.add(target);
        }
      }
      if (more) {
        came();
      }
    });
    signal.addEventListener('abort', () => this._observer.disconnect());
  }

  watch(element: Element): void {
    this._observer.observe(element);
  }

  has(element: Element): boolean {
    return !this._away.has(element);
  }
}
