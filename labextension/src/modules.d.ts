declare module '*.svg' {
  const value: string;
  export default value;
}

/** The version of this package; build.mjs puts it in. */
declare const VERSION: string;
