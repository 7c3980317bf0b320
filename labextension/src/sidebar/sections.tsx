/** The fields of a form: the few that matter, the others in folded sections, and a search over all. */
import { isComposing } from '../run/keys';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IFormSection } from '../answers/forms';
import type { IField } from './schema';

export interface ISectionsProps {
  fields: readonly IField[];
  /** The names of those that stand open. */
  first: readonly string[];
  sections: readonly IFormSection[];
  /** Whether a field says something, and whether something is wrong with it. */
  isSet: (about: IField) => boolean;
  isWrong: (about: IField) => boolean;
  trans: TranslationBundle;
  draw: (about: IField) => React.ReactElement;
}

export function Sections(props: ISectionsProps): React.ReactElement {
  const { fields, trans } = props;
  const [query, setQuery] = React.useState('');
  const byName = new Map(fields.map(about => [about.name, about]));
  const of = (names: readonly string[]) =>
    names.map(name => byName.get(name)).filter(about => about !== undefined);
  const folded = props.sections.map(({ title, fields: names }) => ({ title, fields: of(names) }));
  const found = query.trim() ? fields.filter(about => fits(about, query)) : null;
  const titleOf = (about: IField) =>
    folded.find(section => section.fields.includes(about))?.title ?? '';
  return (
    <>
      {folded.length > 0 && (
        <input
          type="search"
          className="jpd-sb-input jpd-sb-form-search"
          placeholder={trans.__('Search %1 options', fields.length)}
          aria-label={trans.__('Search options')}
          value={query}
          spellCheck={false}
          onChange={event => setQuery(event.target.value)}
          onKeyDown={event => {
            if (isComposing(event.nativeEvent)) {
              event.stopPropagation(); // Escape ends the word, not the form
            } else if (event.key === 'Escape' && query) {
              event.stopPropagation();
              setQuery('');
            } else if (event.key === 'Enter') {
              event.preventDefault(); // it would save
            }
          }}
        />
      )}
      {found !== null && (
        <p className="jpd-sr" role="status">
          {trans._n('%1 option', '%1 options', found.length)}
        </p>
      )}
      {found?.length === 0 && (
        <p className="jpd-sb-form-none jpd-sb-dim">
          {trans.__('No option matches “%1”.', query.trim())}
        </p>
      )}
      {found?.map((about, index) => {
        const title = titleOf(about);
        return (
          <React.Fragment key={about.name}>
            {title && title !== (index > 0 ? titleOf(found[index - 1]) : '') && (
              <h4 className="jpd-sb-caption jpd-sb-form-caption">{title}</h4>
            )}
            {props.draw(about)}
          </React.Fragment>
        );
      })}
      {found === null && <div className="jpd-sb-form-first">{of(props.first).map(props.draw)}</div>}
      {found === null &&
        folded.map(section => <Section key={section.title} {...props} {...section} />)}
    </>
  );
}

function Section(props: ISectionsProps & { title: string }): React.ReactElement {
  const { fields, trans } = props;
  const [open, setOpen] = React.useState(false);
  const wrong = fields.some(props.isWrong);
  const shown = open || wrong;
  const set = fields.filter(props.isSet);
  React.useEffect(() => {
    if (wrong) {
      setOpen(true); // and it stays so once that is mended
    }
  }, [wrong]);
  return (
    <details open={shown} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>
        {props.title}
        {set.length > 0 && (
          <span className="jpd-sb-dim" title={set.map(about => about.title).join(', ')}>
            {trans.__(' · %1 set', set.length)}
          </span>
        )}
      </summary>
      {shown && fields.map(props.draw)}
    </details>
  );
}

/** Whether all words stand in a field's title, name, flags or help. */
export function fits(about: IField, query: string): boolean {
  const said = [
    about.title,
    about.name,
    about.name.replaceAll('_', ' '),
    ...about.flags,
    about.help
  ]
    .join('\n')
    .toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every(word => said.includes(word));
}
