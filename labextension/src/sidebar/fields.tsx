/** One field of a form: its label, what is typed, its help, and what is wrong with it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IField } from './schema';

export interface ISchemaFieldProps {
  about: IField;
  value: string | boolean;
  error: string | null;
  trans: TranslationBundle;
  onChange: (value: string | boolean) => void;
  onLeave?: () => void;
}

export function SchemaField(props: ISchemaFieldProps): React.ReactElement {
  const { about, value, onChange, trans } = props;
  const text = typeof value === 'string' ? value : '';
  return (
    <Labelled
      id={about.name}
      title={about.title}
      help={about.help}
      warning={
        about.secrets
          ? trans.__('The value is saved as plain text. Do not type passwords or tokens.')
          : ''
      }
      error={props.error}
      onLeave={props.onLeave}
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
                {!about.required && <option value="">{defaultName(about, trans)}</option>}
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
                placeholder={trans.__('%1, one per line', about.hint || about.title)}
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

export function Labelled(props: {
  id: string;
  title: string;
  help: string;
  /** What is to be known before anything is typed. */
  warning?: string;
  error: string | null;
  onLeave?: () => void;
  inline?: boolean;
  children: (ids: ILabelIds) => React.ReactElement;
}): React.ReactElement {
  const id = `jpd-field-${props.id}`;
  const described = [
    props.help && `${id}-help`,
    props.warning && `${id}-warning`,
    props.error && `${id}-error`
  ].filter(Boolean);
  return (
    <div className="jpd-sb-field" data-inline={props.inline || undefined} onBlur={props.onLeave}>
      <label htmlFor={id}>{props.title}</label>
      {props.children({
        id,
        'aria-describedby': described.join(' ') || undefined,
        'aria-invalid': props.error !== null || undefined
      })}
      {props.help && (
        <p className="jpd-sb-field-help" id={`${id}-help`} title={props.help}>
          {props.help}
        </p>
      )}
      {props.warning && (
        <p className="jpd-sb-field-warning" id={`${id}-warning`}>
          {props.warning}
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
