/** From a backend's JSON schema to form fields, and from what was typed to options. */
import type { IBackend, ISchema } from '../model/server';
import { ownValue } from '../run/ownvalue';

export type FieldKind = 'integer' | 'number' | 'text' | 'switch' | 'choice' | 'list' | 'pairs';

export interface IField {
  name: string;
  title: string;
  help: string;
  /** What the field is called on a command line, and so in some of the server's messages. */
  flags: readonly string[];
  kind: FieldKind;
  required: boolean;
  /** Shown where nothing is typed. */
  hint: string;
  choices: readonly unknown[];
  minimum?: number;
  maximum?: number;
  default: unknown;
  /** People type passwords into such a field elsewhere. */
  secrets: boolean;
}

/** What is typed, by field: the text of an input, or whether a switch is on. */
export type Draft = Readonly<Record<string, string | boolean>>;

const HINTS: Partial<Record<FieldKind, string>> = { pairs: 'NAME=VALUE', list: '' };

/** All fields of a backend's form: those of every run, without what belongs to one cell, and its own. */
export function formFields(backend: IBackend | undefined): IField[] {
  const run = fieldsOf(backend?.run_schema ?? null);
  const own = fieldsOf(backend?.schema ?? null).filter(
    about => about.flags.length && !run.some(one => one.name === about.name)
  );
  return [...run, ...own];
}

export function fieldsOf(schema: ISchema | null, leaveOut: readonly string[] = []): IField[] {
  const required = new Set(schema?.required ?? []);
  return Object.entries(schema?.properties ?? {})
    .filter(([name]) => !leaveOut.includes(name))
    .map(([name, about]) => field(name, resolve(about, schema?.$defs ?? {}), required.has(name)));
}

function resolve(about: ISchema, defs: Record<string, ISchema>): ISchema {
  const { $ref, allOf, anyOf, ...own } = about;
  const target = $ref ? defs[$ref.slice($ref.lastIndexOf('/') + 1)] : undefined;
  // pydantic keeps the field's own words beside the reference; `null` only says that it may be left out.
  const option = anyOf?.find(one => one.type !== 'null');
  return [target, ...(allOf ?? []), option]
    .filter((one): one is ISchema => one !== undefined)
    .reduce<ISchema>((all, one) => ({ ...resolve(one, defs), ...all }), own);
}

function field(name: string, about: ISchema, required: boolean): IField {
  const kind = kindOf(about);
  const shown = about.default;
  return {
    name,
    title: about.title ?? name,
    help: about.description ?? '',
    flags: about.flags ?? [`--${name.replaceAll('_', '-')}`],
    kind,
    required,
    hint:
      / such as (.+)$/.exec(about.wanted ?? '')?.[1] ??
      about.metavar ??
      (kind !== 'switch' && kind !== 'pairs' && shown !== null && shown !== undefined
        ? String(shown)
        : (HINTS[kind] ?? '')),
    choices: kind === 'choice' ? (about.enum ?? [about.const]) : [],
    minimum: about.minimum,
    maximum: about.maximum,
    default: shown,
    secrets: about.secrets === true
  };
}

function kindOf(about: ISchema): FieldKind {
  if (about.enum || about.const !== undefined) {
    return 'choice';
  }
  switch (about.type) {
    case 'integer':
    case 'number':
      return about.type;
    case 'boolean':
      return 'switch';
    case 'array':
      return 'list';
    case 'object':
      return 'pairs';
    default:
      return 'text';
  }
}

/** What a form begins with, from saved options. */
export function draftOf(fields: readonly IField[], options: Record<string, unknown>): Draft {
  return Object.fromEntries(
    fields.map(about => {
      const value = ownValue(options, about.name);
      if (about.kind === 'switch') {
        return [about.name, Boolean(value ?? about.default)];
      }
      if (value === undefined || value === null) {
        return [about.name, ''];
      }
      if (Array.isArray(value)) {
        return [about.name, value.map(String).join('\n')];
      }
      if (typeof value === 'object') {
        const lines = Object.entries(value).map(([key, text]) => `${key}=${String(text)}`);
        return [about.name, lines.join('\n')];
      }
      return [about.name, String(value)];
    })
  );
}

/** The options to save: what is left empty is left out. Text that is no number goes as it is, and the
 * server says what is wrong with it in the words it has for the flag. */
export function optionsOf(fields: readonly IField[], draft: Draft): Record<string, unknown> {
  const options: [string, unknown][] = [];
  for (const about of fields) {
    const typed = ownValue(draft, about.name);
    const value = typeof typed === 'string' ? parse(about, typed) : typed;
    const untouched = about.kind === 'switch' && Boolean(value) === Boolean(about.default);
    if (value !== undefined && !untouched) {
      options.push([about.name, value]);
    }
  }
  return Object.fromEntries(options);
}

function parse({ kind, choices }: IField, typed: string): unknown {
  const text = typed.trim();
  if (!text) {
    return undefined;
  }
  const lines = text
    .split('\n')
    .map(line => line.trim())
    .filter(Boolean);
  if (kind === 'list') {
    return lines;
  }
  if (kind === 'choice') {
    return choices.find(choice => String(choice) === text) ?? text;
  }
  if (kind === 'pairs' && lines.every(line => line.includes('='))) {
    return Object.fromEntries(
      lines.map(line => {
        const at = line.indexOf('=');
        return [line.slice(0, at), line.slice(at + 1)];
      })
    );
  }
  if (kind === 'integer' || kind === 'number') {
    const number = Number(text);
    return Number.isFinite(number) ? number : text;
  }
  return text;
}
