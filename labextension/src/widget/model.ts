/** The part of anywidget's API that is used here, and what the kernel's widget says over it. */
import type { ICurves, ILogPage, IRankError, IResult, IRunInfo, RunChange } from '../run/source';

export interface IModel {
  get(name: string): unknown;
  on(name: string, callback: (...args: never[]) => void): void;
  off(name: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
}

/** The kernel's `snapshot` trait; empty while nothing had to be put there. */
export interface ISnapshot {
  /** The run has ended, and nothing more will come. */
  final: boolean;
  /** It was made while the kernel could not be asked. */
  told: boolean;
  run: IRunInfo;
  /** The last lines of all ranks. */
  log: ILogPage;
  /** How many lines each rank has. */
  totals: Record<string, number>;
  curves: ICurves;
  errors: IRankError[];
  results: IResult[];
}

/** What comes as a custom message. */
export type Message =
  | { kind: 'here' }
  | { kind: 'changes'; changes: RunChange[] }
  | { kind: 'answer'; ask: number; result?: unknown; error?: string; missing?: string };

export function snapshotOf(model: IModel): ISnapshot | null {
  const value = model.get('snapshot');
  return value && typeof value === 'object' && 'run' in value ? (value as ISnapshot) : null;
}
