/** Timers that end together. */
export class Timers {
  private readonly _running = new Set<ReturnType<typeof setTimeout>>();

  /** Call a function once, after a delay in milliseconds. */
  later(delay_ms: number, go: () => void): void {
    const timer = setTimeout(() => {
      this._running.delete(timer);
      go();
    }, delay_ms);
    this._running.add(timer);
  }

  /** Call none of those that wait. */
  clear(): void {
    this._running.forEach(timer => clearTimeout(timer));
    this._running.clear();
  }
}
