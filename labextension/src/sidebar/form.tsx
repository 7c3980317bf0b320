/** The form for a cluster, made from the backend's schema; the server says what is wrong. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { ApiError } from '../api';
import { explain } from '../model/explain';
import type { IBackend, IClusterData } from '../model/server';
import { type Draft, draftOf, fieldsOf, type IField, optionsOf } from './schema';

/** What belongs to one cell and not to a cluster. */
const NOT_SAVED = ['backend', 'cluster', 'out', 'detach', 'dry_run'];
/** Shown before everything else; the other options of every run are behind "More options". */
const FIRST = ['np', 'hosts', 'hostfile'];

export interface IClusterFormProps {
  backends: readonly IBackend[];
  /** What the form begins with. */
  name: string;
  data: IClusterData;
  /** null: a new cluster. */
  oldName: string | null;
  trans: TranslationBundle;
  onSave: (name: string, data: IClusterData) => Promise<void>;
  onCancel: () => void;
}

export function ClusterForm(props: IClusterFormProps): React.ReactElement {
  const { backends, trans } = props;
  const [name, setName] = React.useState(props.name);
  const [backendName, setBackend] = React.useState(props.data.backend);
  const backend = backends.find(one => one.name === backendName);
  const own = React.useMemo(
    () => fieldsOf(backend?.schema ?? null, [...NOT_SAVED, 'hosts']),
    [backend]
  );
  const run = React.useMemo(() => fieldsOf(backend?.run_schema ?? null, NOT_SAVED), [backend]);
  const [draft, setDraft] = React.useState<Draft>(() =>
    draftOf([...run, ...own], props.data.options)
  );
  const [problem, setProblem] = React.useState<{ field: string | null; text: string } | null>(null);
  const [saving, setSaving] = React.useState(false);
  const form = React.useRef<HTMLFormElement>(null);
  const common = run.filter(about => FIRST.includes(about.name));
  const more = run.filter(about => !FIRST.includes(about.name));

  React.useEffect(() => {
    const wrong = form.current?.querySelector<HTMLElement>('[aria-invalid=true]');
    wrong?.focus({ preventScroll: true });
    // What is wrong with it stands below it.
    wrong?.closest('.jpd-sb-field')?.scrollIntoView({ block: 'nearest' });
  }, [problem]);
  React.useEffect(() => {
    form.current?.querySelector<HTMLElement>('input')?.focus();
  }, []);

  const save = async () => {
    setSaving(true);
    setProblem(null);
    try {
      await props.onSave(name.trim(), {
        backend: backendName,
        options: optionsOf([...run, ...own], draft)
      });
    } catch (error) {
      setSaving(false);
      const field = fieldOf(error, name.trim(), [...run, ...own]);
      setProblem({ field, text: explain(error, trans) });
    }
  };

  const errorOf = (field: string) =>
    problem?.field === field ? withoutName(problem.text, field) : null;
  const draw = (about: IField) => (
    <SchemaField
      key={about.name}
      about={about}
      value={draft[about.name] ?? (about.kind === 'switch' ? Boolean(about.default) : '')}
      error={errorOf(about.name)}
      trans={trans}
      onChange={value => setDraft(all => ({ ...all, [about.name]: value }))}
    />
  );
  const moreOpen = more.some(
    about => errorOf(about.name) !== null || about.name in props.data.options
  );

  return (
    <form
      className="jpd-sb-form"
      ref={form}
      aria-label={props.oldName ? trans.__('Edit %1', props.oldName) : trans.__('New cluster')}
      noValidate
      onSubmit={event => {
        event.preventDefault();
        void save();
      }}
      onKeyDown={event => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          props.onCancel();
        }
      }}
    >
      <div className="jpd-sb-form-fields">
        <Labelled id="name" title={trans.__('Name')} help="" error={errorOf('name')}>
          {ids => (
            <input
              {...ids}
              className="jpd-sb-input"
              value={name}
              required
              autoComplete="off"
              spellCheck={false}
              onChange={event => setName(event.target.value)}
            />
          )}
        </Labelled>
        <Labelled id="backend" title={trans.__('Backend')} help="" error={errorOf('backend')}>
          {ids => (
            <select
              {...ids}
              className="jpd-sb-input"
              value={backendName}
              onChange={event => setBackend(event.target.value)}
            >
              {!backend && <option value={backendName}>{backendName}</option>}
              {backends.map(one => (
                <option key={one.name} value={one.name} disabled={!one.available}>
                  {one.available ? one.name : trans.__('%1 (not installed)', one.name)}
                </option>
              ))}
            </select>
          )}
        </Labelled>
        {common.map(draw)}
        {own.map(draw)}
        {more.length > 0 && (
          <details open={moreOpen || undefined}>
            <summary>{trans.__('More options')}</summary>
            {more.map(draw)}
          </details>
        )}
      </div>
      {problem && problem.field === null && (
        <p className="jpd-sb-field-error" role="alert">
          {problem.text}
        </p>
      )}
      <div className="jpd-sb-foot">
        <button type="button" className="jpd-sb-button" onClick={props.onCancel}>
          {trans.__('Cancel')}
        </button>
        <button
          type="submit"
          className="jpd-sb-button jpd-sb-primary"
          disabled={saving || !name.trim()}
        >
          {saving ? trans.__('Saving…') : trans.__('Save')}
        </button>
      </div>
    </form>
  );
}

/** An error beside its field need not begin with the field's name. */
function withoutName(text: string, field: string): string {
  const [begin] = new RegExp(`^(${field} (?!and )|--?[\\w-]+: )`).exec(text) ?? [''];
  const rest = text.slice(begin.length);
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

/** The field that the server's answer is about: the one it begins with, else the first flag in it. */
function fieldOf(error: unknown, name: string, fields: readonly IField[]): string | null {
  if (!(error instanceof ApiError)) {
    return null;
  }
  const { message } = error;
  if (message.startsWith(`'${name}' `) || /^there is a cluster\b/.test(message)) {
    return 'name';
  }
  const [first] = /^\w+/.exec(message) ?? [''];
  if (first === 'backend' || fields.some(about => about.name === first)) {
    return first;
  }
  const flags = message.match(/(?<![\w-])--?[A-Za-z][\w-]*/g) ?? [];
  const about = flags.map(flag => fields.find(one => one.flags.includes(flag))).find(Boolean);
  return about?.name ?? null;
}

function SchemaField(props: {
  about: IField;
  value: string | boolean;
  error: string | null;
  trans: TranslationBundle;
  onChange: (value: string | boolean) => void;
}): React.ReactElement {
  const { about, value, onChange } = props;
  const text = typeof value === 'string' ? value : '';
  return (
    <Labelled
      id={about.name}
      title={about.title}
      help={about.help}
      error={props.error}
      inline={about.kind === 'switch'}
    >
      {ids => {
        const given = { ...ids, className: 'jpd-sb-input', value: text, required: about.required };
        switch (about.kind) {
          case 'switch':
            return (
              <input
                {...ids}
                type="checkbox"
                checked={value === true}
                onChange={event => onChange(event.target.checked)}
              />
            );
          case 'choice':
            return (
              <select {...given} onChange={event => onChange(event.target.value)}>
                {!about.required && <option value="">{defaultName(about, props.trans)}</option>}
                {about.choices.map(String).map(choice => (
                  <option key={choice} value={choice}>
                    {choice}
                  </option>
                ))}
              </select>
            );
          case 'list':
          case 'pairs':
            return (
              <textarea
                {...given}
                rows={Math.min(6, Math.max(2, text.split('\n').length))}
                placeholder={props.trans.__('%1, one per line', about.hint || about.title)}
                spellCheck={false}
                onChange={event => onChange(event.target.value)}
              />
            );
          default:
            // Numbers may be words, such as 10m or auto; what is neither, the server tells.
            return (
              <input
                {...given}
                type="text"
                inputMode={about.kind === 'integer' && !about.hint ? 'numeric' : undefined}
                placeholder={about.hint}
                autoComplete="off"
                spellCheck={false}
                onChange={event => onChange(event.target.value)}
              />
            );
        }
      }}
    </Labelled>
  );
}

function defaultName(about: IField, trans: TranslationBundle): string {
  return about.default === null || about.default === undefined
    ? trans.__('Default')
    : trans.__('Default: %1', String(about.default));
}

interface ILabelIds {
  id: string;
  'aria-describedby': string | undefined;
  'aria-invalid': boolean | undefined;
}

function Labelled(props: {
  id: string;
  title: string;
  help: string;
  error: string | null;
  inline?: boolean;
  children: (ids: ILabelIds) => React.ReactElement;
}): React.ReactElement {
  const id = `jpd-field-${props.id}`;
  const described = [props.help && `${id}-help`, props.error && `${id}-error`].filter(Boolean);
  return (
    <div className="jpd-sb-field" data-inline={props.inline || undefined}>
      <label htmlFor={id}>{props.title}</label>
      {props.children({
        id,
        'aria-describedby': described.join(' ') || undefined,
        'aria-invalid': props.error !== null || undefined
      })}
      {props.help && (
        <p className="jpd-sb-field-help" id={`${id}-help`}>
          {props.help}
        </p>
      )}
      {props.error && (
        <p className="jpd-sb-field-error" id={`${id}-error`} role="alert">
          {props.error}
        </p>
      )}
    </div>
  );
}
