/** Texts through the host's translator; here only the part of it that the view needs. */

/** A text in the user's language; `%1`, `%2` … stand for the arguments. */
export type Trans = (text: string, ...args: (string | number)[]) => string;

/** Through a translator of JupyterLab. */
export function translating(bundle: { __(text: string, ...args: string[]): string }): Trans {
  return (text, ...args) => bundle.__(text, ...args.map(String));
}

/** English, as written. */
export const english: Trans = (text, ...args) =>
  text.replace(/%(\d)/g, (all: string, digit: string) => {
    const arg = args[Number(digit) - 1];
    return arg === undefined ? all : String(arg);
  });
