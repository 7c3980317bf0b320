/** The form for a cluster, laid out as the backend says; the server says what it means and what is wrong. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { ApiError } from '../api';
import { explain } from '../model/explain';
import type { IBackend, IClusterData, IFormMeaning } from '../model/server';
import { isComposing } from '../run/keys';
import { ownValue } from '../run/ownvalue';
import { Labelled, SchemaField } from './fields';
import { LineAtFoot, Missing } from './formfoot';
import { useMeaning } from './meaning';
import { type Draft, draftOf, formFields, type IField, optionsOf } from './schema';
import { Sections } from './sections';

export interface IClusterFormProps {
  backends: readonly IBackend[];
  /** What the form begins with. */
  name: string;
  data: IClusterData;
  /** null: a new cluster. */
  oldName: string | null;
  trans: TranslationBundle;
  /** What a form with these values means; starts and saves nothing. */
  ask: (backend: string, options: Record<string, unknown>) => Promise<IFormMeaning>;
  /** `test`: try it as well, once it is saved. */
  onSave: (name: string, data: IClusterData, test: boolean) => Promise<void>;
  onCancel: () => void;
  /** Ask whether what was typed is to be lost. */
  mayDiscard: () => Promise<boolean>;
  /** Something is typed that is not saved, or no more. */
  onTyped?: (typed: boolean) => void;
  /** Insert a cell that installs an engine; null: no notebook is open. */
  onInstall: ((cell: string) => void) | null;
}

/** What is wrong as a whole stands beside the buttons. */
const WHOLE = '';
type Problems = Readonly<Record<string, string>>;

export function ClusterForm(props: IClusterFormProps): React.ReactElement {
  const { backends, trans } = props;
  const [name, setName] = React.useState(props.name);
  const [backendName, setBackend] = React.useState(props.data.backend);
  const backend = backends.find(one => one.name === backendName);
  const fields = React.useMemo(() => formFields(backend), [backend]);
  const [draft, setDraft] = React.useState<Draft>(() => draftOf(fields, props.data.options));
  const [initial] = React.useState(draft);
  /** Fields of which is shown what is wrong: those that were left, and those that kept from saving. */
  const [judged, setJudged] = React.useState<ReadonlySet<string>>(new Set());
  /** What saving itself came to: a name that is taken, a file that cannot be written. */
  const [refused, setRefused] = React.useState<Problems>({});
  const [saving, setSaving] = React.useState(false);
  const [attempts, setAttempts] = React.useState(0);
  const form = React.useRef<HTMLFormElement>(null);
  const options = optionsOf(fields, draft);
  const placed = backend?.places?.some(place => place in options);
  const nowhere = backend?.available && (backend.problem ?? (placed ? null : backend.no_site));
  const meaning = useMeaning(props.ask, backendName, options, Boolean(backend?.available));
  const wrong: Problems = { ...problemsOf(meaning.latest, fields), ...refused };
  const errorOf = (field: string) => (judged.has(field) ? (ownValue(wrong, field) ?? null) : null);
  const whole = errorOf(WHOLE);

  React.useEffect(() => {
    if (!attempts) {
      return;
    }
    const first = form.current?.querySelector<HTMLElement>('[aria-invalid=true]');
    first?.focus({ preventScroll: true });
    // What is wrong with it stands below it.
    first?.closest('.jpd-sb-field')?.scrollIntoView({ block: 'nearest' });
  }, [attempts]);
  React.useEffect(() => {
    form.current?.querySelector<HTMLElement>('input')?.focus();
  }, []);

  const change = (field: string) => {
    // What was right is not judged again before it is left: half a value is no mistake.
    if (errorOf(field) === null) {
      setJudged(all => new Set([...all].filter(one => one !== field)));
    }
    setRefused({});
  };
  const leave = (field: string) => setJudged(all => new Set(all).add(field));

  const refuse = (problems: Problems) => {
    setSaving(false);
    setJudged(new Set(Object.keys(problems)));
    setAttempts(count => count + 1);
  };
  const save = async (test: boolean) => {
    setSaving(true);
    setRefused({});
    try {
      const problems = problemsOf(await meaning.ask(), fields);
      if (Object.keys(problems).length) {
        refuse(problems);
        return;
      }
      await props.onSave(name.trim(), { backend: backendName, options }, test);
    } catch (error) {
      const problem = { [fieldOf(error)]: sentence(explain(error, trans)) };
      setRefused(problem);
      refuse(problem);
    }
  };

  const typed =
    name !== props.name ||
    backendName !== props.data.backend ||
    JSON.stringify(draft) !== JSON.stringify(initial);
  React.useEffect(() => {
    props.onTyped?.(typed);
  }, [typed]);
  /** Leave the form, after asking if something was typed. */
  const leaveForm = async () => {
    if (!typed || (await props.mayDiscard())) {
      props.onCancel();
    }
  };

  const draw = (about: IField) => (
    <SchemaField
      key={about.name}
      about={about}
      value={ownValue(draft, about.name) ?? (about.kind === 'switch' ? Boolean(about.default) : '')}
      error={errorOf(about.name)}
      trans={trans}
      onChange={value => {
        setDraft(all => ({ ...all, [about.name]: value }));
        change(about.name);
      }}
      onLeave={() => leave(about.name)}
    />
  );
  const ready = Boolean(name.trim()) && Boolean(backend?.available) && !saving;

  return (
    <form
      className="jpd-sb-form"
      ref={form}
      aria-label={props.oldName ? trans.__('Edit %1', props.oldName) : trans.__('New cluster')}
      noValidate
      onSubmit={event => {
        event.preventDefault();
        if (ready) {
          void save(false);
        }
      }}
      onKeyDown={event => {
        if (event.key === 'Escape' && !isComposing(event.nativeEvent)) {
          event.stopPropagation();
          void leaveForm();
        }
      }}
    >
      <div className="jpd-sb-form-fields">
        <div className="jpd-sb-form-head">
          <Labelled id="name" title={trans.__('Name')} help="" error={errorOf('name')}>
            {ids => (
              <input
                {...ids}
                className="jpd-sb-input"
                value={name}
                required
                autoComplete="off"
                spellCheck={false}
                onChange={event => {
                  setName(event.target.value);
                  change('name');
                }}
              />
            )}
          </Labelled>
          <Labelled id="backend" title={trans.__('Backend')} help="" error={errorOf('backend')}>
            {ids => (
              <select
                {...ids}
                className="jpd-sb-input"
                value={backendName}
                onChange={event => {
                  setBackend(event.target.value);
                  setJudged(new Set());
                  setRefused({});
                }}
              >
                {!backend && <option value={backendName}>{backendName}</option>}
                {backends.map(one => (
                  <option key={one.name} value={one.name}>
                    {one.install ? trans.__('%1 (not installed)', one.name) : one.name}
                  </option>
                ))}
              </select>
            )}
          </Labelled>
        </div>
        {backend && <Missing backend={backend} trans={trans} onInstall={props.onInstall} />}
        {nowhere && (
          <div className="jpd-sb-problem" role="note">
            <p>{nowhere}</p>
          </div>
        )}
        <Sections
          key={backendName}
          fields={fields}
          first={backend?.first ?? fields.map(about => about.name)}
          sections={backend?.sections ?? []}
          isSet={about => about.name in options}
          isWrong={about => errorOf(about.name) !== null}
          trans={trans}
          draw={draw}
        />
      </div>
      {whole !== null && (
        <p className="jpd-sb-field-error" role="alert">
          {whole}
        </p>
      )}
      {backend?.available && <LineAtFoot meaning={meaning} trans={trans} />}
      <div className="jpd-sb-foot">
        <button type="button" className="jpd-sb-button" onClick={props.onCancel}>
          {trans.__('Cancel')}
        </button>
        <button
          type="button"
          className="jpd-sb-button"
          disabled={!ready}
          title={trans.__('Save and run a test job')}
          onClick={() => void save(true)}
        >
          {trans.__('Save & test')}
        </button>
        <button type="submit" className="jpd-sb-button jpd-sb-primary" disabled={!ready}>
          {saving ? trans.__('Saving…') : trans.__('Save')}
        </button>
      </div>
    </form>
  );
}

/** What is wrong by field; what is said of a field that the form does not have is said of the whole. */
function problemsOf(meaning: IFormMeaning | null, fields: readonly IField[]): Problems {
  const known = (field: string | null) =>
    field === 'backend' || fields.some(about => about.name === field);
  return Object.fromEntries(
    (meaning?.problems ?? []).map(({ field, text }) => [
      field !== null && known(field) ? field : WHOLE,
      sentence(text)
    ])
  );
}

/** The field that an answer to saving is about: of the others the form knew before. */
function fieldOf(error: unknown): string {
  const field = error instanceof ApiError ? error.data.field : undefined;
  return typeof field === 'string' ? field : WHOLE;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
