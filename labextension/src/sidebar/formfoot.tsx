/** What stands in a form beside its fields: what to install, and the line that means the same. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { Clipboard } from '@jupyterlab/apputils';
import { checkIcon, copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { IBackend } from '../model/server';
import type { IMeaning } from './meaning';
import { IconButton } from './runrow';

const COPIED_MS = 1500;

/** The form as one line of a cell, to copy. */
export function LineAtFoot(props: {
  meaning: IMeaning;
  trans: TranslationBundle;
}): React.ReactElement {
  const { meaning, trans } = props;
  const { latest, current } = meaning;
  // Its room is there before it is, so that nothing moves when it comes.
  const line = meaning.line ?? '\u00a0';
  return (
    <div className="jpd-sb-meaning" data-old={!current || undefined}>
      <code role="group" tabIndex={0} aria-label={trans.__('The form as a line')}>
        {line}
      </code>
      <Copy text={line} label={trans.__('Copy the line')} disabled={!current} trans={trans} />
      {latest?.note && (current || latest.line === null) && (
        <p className="jpd-sb-field-help">{latest.note}</p>
      )}
    </div>
  );
}

/** What is missing for a backend, and what installs it. */
export function Missing(props: {
  backend: IBackend;
  trans: TranslationBundle;
  /** null: there is no notebook to insert it into. */
  onInstall: ((cell: string) => void) | null;
}): React.ReactElement | null {
  const { backend, trans, onInstall } = props;
  const { install, install_cell: cell } = backend;
  if (!install) {
    return null;
  }
  return (
    <div className="jpd-sb-problem jpd-sb-missing" role="note">
      <p>{trans.__('%1 is not installed where this server runs.', backend.name)}</p>
      <div className="jpd-sb-meaning">
        <code>{install}</code>
        <Copy text={install} label={trans.__('Copy the install command')} trans={trans} />
      </div>
      {cell && (
        <button
          type="button"
          className="jpd-sb-button"
          disabled={onInstall === null}
          title={
            onInstall === null
              ? trans.__('Open a notebook first. The install cell is inserted there.')
              : trans.__('Insert a cell that installs %1 in the notebook’s kernel', backend.name)
          }
          onClick={() => onInstall?.(cell)}
        >
          {trans.__('Insert %1', cell.split(' ').slice(0, 2).join(' '))}
        </button>
      )}
    </div>
  );
}

function Copy(props: {
  text: string;
  label: string;
  disabled?: boolean;
  trans: TranslationBundle;
}): React.ReactElement {
  const [copied, setCopied] = React.useState(false);
  React.useEffect(() => {
    if (copied) {
      const timer = setTimeout(() => setCopied(false), COPIED_MS);
      return () => clearTimeout(timer);
    }
    return undefined;
  }, [copied]);
  return (
    <>
      <IconButton
        icon={copied ? checkIcon : copyIcon}
        label={props.label}
        disabled={props.disabled}
        onClick={() => {
          Clipboard.copyToSystem(props.text);
          setCopied(true);
        }}
      />
      <span className="jpd-sr" role="status">
        {copied ? props.trans.__('Copied') : ''}
      </span>
    </>
  );
}
