/** A question to the kernel, and why it may stay without an answer. */
import type { Attempt } from '../run/source';

/** The kernel does not answer. */
export class Deaf extends Error {}

/** Whether the snapshot has nothing of this attempt. */
export function isEarlier(attempt: Attempt): attempt is number {
  return attempt !== null && attempt !== undefined;
}

export interface IAsked {
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
  method: string;
  args: Record<string, unknown>;
}
