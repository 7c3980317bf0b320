/** A question to the kernel, and why it may stay without an answer. */

/** The kernel does not answer. */
export class KernelSilent extends Error {}

export interface IQuestion {
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
  method: string;
  args: object;
  /** Aborted when nobody wants the answer any more. */
  signal?: AbortSignal;
}
