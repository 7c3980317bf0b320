/** The part of anywidget's API that is used here, and what the kernel's widget says over it. */
import type { ISnapshot } from '../answers/runs';
import type { RunChange } from '../run/source';

export type { ISnapshot };

export interface IModel {
  get(name: string): unknown;
  on(name: string, callback: (...args: never[]) => void): void;
  off(name: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
  /** Where the kernel's other widgets are found. */
  widget_manager: { get_model(id: string): Promise<IModel> };
}

/** What comes as a custom message. */
export type Message =
  | { kind: 'here' }
  | { kind: 'changes'; changes: RunChange[] }
  | { kind: 'answer'; ask: number; result?: unknown; error?: string; missing?: string };

/** The kernel's `snapshot` trait; null while nothing had to be put there. */
export function snapshotOf(model: IModel): ISnapshot | null {
  const value = model.get('snapshot');
  return value && typeof value === 'object' && 'run' in value ? (value as ISnapshot) : null;
}
