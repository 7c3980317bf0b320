/** Files for the user, such as a timeline of a launcher or a trace: one button each saves it. */
import { reason, type IContext } from './context';
import { button, el } from './dom';
import { bytes } from './format';
import type { IRunFile } from './source';

export class Files {
  readonly node: HTMLElement;
  private readonly _list = el('div', { class: 'jpd-file-list' });
  private _known = '';

  constructor(private readonly _context: IContext) {
    const { trans } = _context;
    this.node = el(
      'section',
      { class: 'jpd-files', 'aria-label': trans('Files'), hidden: true },
      el('h4', { class: 'jpd-title' }, trans('Files')),
      this._list
    );
  }

  update(files: readonly IRunFile[]): void {
    const known = JSON.stringify(files);
    if (known === this._known) {
      return;
    }
    this._known = known;
    const { trans, signal } = this._context;
    this.node.hidden = !files.length;
    const focused = this._list.contains(document.activeElement);
    this._list.replaceChildren(
      ...files.map(file => {
        const node = button(
          {
            label: trans('Download %1', file.name),
            text: file.name,
            icon: 'download',
            class: 'jpd-file'
          },
          () => void this._download(file.name),
          signal
        );
        node.append(el('span', { class: 'jpd-muted' }, bytes(file.bytes)));
        return node;
      })
    );
    if (focused) {
      (this._list.firstElementChild as HTMLElement | null)?.focus();
    }
  }

  private async _download(name: string): Promise<void> {
    const { source, trans, announce } = this._context;
    try {
      await source.downloadFile(name);
    } catch (error) {
      announce(trans('%1 cannot be downloaded: %2', name, reason(error)));
    }
  }
}
