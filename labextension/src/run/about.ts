/** What is known of a run besides how it goes: tags and a note, code, parameters, what it was started with; and
 * what can be done with it in its notebook. Shown in a run's own tab, where there is room. */
import type { IEnvironment } from '../answers/runs';
import { reason, type IContext } from './context';
import { button, el, setText } from './dom';
import { typeInto } from './rename';
import type { IDisposable, IRunInfo } from './source';

const MARKDOWN = 'text/markdown';
/** The environment is recorded a moment after the start, which a short run may have behind it sooner. */
const LOOK_MS = 1000;
const LOOKS = 30;

export interface IRunActions {
  /** What is left out stays as it is. Rejects with a reason. */
  say(change: { name?: string; tags?: string[]; note?: string }): Promise<void>;
  environment(): Promise<IEnvironment>;
  /** Run the cell once more; these three reject with what to do instead. */
  again(run: IRunInfo): Promise<void>;
  /** Put the cell into a new one, to be changed. */
  change(run: IRunInfo): Promise<void>;
  showCell(run: IRunInfo): Promise<void>;
}

export class About {
  readonly node: HTMLElement;
  private readonly _tags = el('span', { class: 'jpd-about-row' });
  private readonly _note = el('div', { class: 'jpd-about-note', hidden: true });
  private readonly _problem = el('p', { class: 'jpd-muted', role: 'status', hidden: true });
  private readonly _typing = el('span', { hidden: true });
  private readonly _code = el('pre', { class: 'jpd-code-text', tabindex: 0 });
  private readonly _parameters = el('dl', { class: 'jpd-pairs' });
  private readonly _parametersTitle = el('summary');
  private readonly _environment = el('div');
  private _recorded = false;
  private _lookAgain: ReturnType<typeof setTimeout> | undefined;
  private readonly _again: HTMLElement[];
  private _run: IRunInfo | null = null;
  private _key = '';
  /** Whether a field is in the place of the tags. News of the run must not take it away. */
  private _typed = false;
  private _shownNote = '';
  private _drawnNote: IDisposable | null = null;

  constructor(
    private readonly _context: IContext,
    private readonly _actions: IRunActions,
    /** The run's name in its header, which can be typed over. */
    private readonly _name: HTMLElement
  ) {
    const { trans, signal } = _context;
    const pen = button({ label: trans('Rename'), icon: 'pen' }, () => this._rename(), signal);
    _name.after(pen, this._typing);
    _name.addEventListener('dblclick', () => this._rename(), { signal });
    const act = (text: string, title: string, what: (run: IRunInfo) => Promise<void>) => {
      const node = button({ label: text, text }, () => void this._try(what), signal);
      node.title = title;
      return node;
    };
    signal.addEventListener('abort', () => this._drawnNote?.dispose());
    this._again = [
      act(trans('Run again'), trans('Run the cell again'), run => _actions.again(run)),
      act(trans('Run again with changes'), trans('Copy the code into a new cell'), run =>
        _actions.change(run)
      ),
      act(trans('Show the cell'), trans('Go to the cell in the notebook'), run =>
        _actions.showCell(run)
      )
    ];
    const environment = el(
      'details',
      { class: 'jpd-folded' },
      el('summary', {}, trans('Environment')),
      this._environment
    );
    const look = () => void this._showEnvironment(() => environment.hasAttribute('open'));
    environment.addEventListener('toggle', look, { signal });
    this.node = el(
      'section',
      { class: 'jpd-about', 'aria-label': trans('About this run') },
      el('div', { class: 'jpd-about-row' }, ...this._again, this._tags),
      this._problem,
      this._note,
      el(
        'div',
        { class: 'jpd-about-folds' },
        el('details', { class: 'jpd-folded' }, this._parametersTitle, this._parameters),
        el('details', { class: 'jpd-folded' }, el('summary', {}, trans('Code')), this._code),
        environment
      )
    );
  }

  update(run: IRunInfo): void {
    this._run = run;
    const { trans } = this._context;
    const key = JSON.stringify([run.tags, run.note, run.parameters, run.source]);
    if (key === this._key) {
      return;
    }
    this._key = key;
    if (!this._typed) {
      this._showTags(run);
    }
    void this._showNote(run.note ?? '');
    setText(
      this._code,
      run.line === null || run.line === undefined
        ? run.source
        : `%%distribute ${run.line}`.trimEnd() + `\n${run.source}`
    );
    const parameters = Object.entries(run.parameters ?? {});
    setText(this._parametersTitle, trans('Parameters (%1)', parameters.length));
    this._parameters.replaceChildren(
      ...pairs(parameters.map(([name, value]) => [name, String(value)]))
    );
    (this._parameters.parentElement as HTMLElement).hidden = !parameters.length;
  }

  /** As Markdown where the host draws it, else as it was typed. */
  private async _showNote(note: string): Promise<void> {
    this._note.hidden = !note;
    if (note === this._shownNote) {
      return;
    }
    this._shownNote = note;
    const { bundles } = this._context;
    this._drawnNote?.dispose();
    this._drawnNote = null;
    setText(this._note, note);
    if (note && bundles.shows(MARKDOWN)) {
      const place = el('div');
      this._note.replaceChildren(place);
      const drawn = await bundles.render(place, MARKDOWN, note, {}).catch(() => null);
      if (note !== this._shownNote) {
        drawn?.dispose();
      } else if (drawn) {
        this._drawnNote = drawn;
      } else {
        setText(this._note, note);
      }
    }
  }

  private _showTags(run: IRunInfo): void {
    const { trans, signal } = this._context;
    const tags = run.tags ?? [];
    this._tags.replaceChildren(
      ...tags.map(tag => el('span', { class: 'jpd-tag' }, tag)),
      button(
        named(tags.length ? trans('Tags …') : trans('Add tags')),
        () =>
          this._type(this._tags, trans('Tags, with commas'), tags.join(', '), text => ({
            tags: text
              .split(',')
              .map(tag => tag.trim())
              .filter(Boolean)
          })),
        signal
      ),
      button(
        named(run.note ? trans('Note …') : trans('Add a note')),
        () =>
          this._type(
            this._tags,
            trans('Note, in Markdown'),
            run.note ?? '',
            note => ({ note }),
            true
          ),
        signal
      )
    );
  }

  private _rename(): void {
    const run = this._run;
    if (!run || !this._typing.hidden) {
      return;
    }
    const { trans, signal } = this._context;
    this._name.hidden = true;
    this._typing.hidden = false;
    const asked = { value: run.name, label: trans('Name of the run'), most: 120 };
    typeInto(this._typing, asked, signal, name => {
      this._typing.hidden = true;
      this._typing.replaceChildren();
      this._name.hidden = false;
      if (name !== null && name !== run.name) {
        void this._try(() => this._actions.say({ name }));
      }
    });
  }

  private _type(
    place: HTMLElement,
    label: string,
    value: string,
    said: (text: string) => { tags?: string[]; note?: string },
    lines = false
  ): void {
    this._typed = true;
    typeInto(place, { value, label, most: 4000, lines }, this._context.signal, text => {
      this._typed = false;
      this._key = '';
      if (this._run) {
        this.update(this._run);
      }
      if (text !== null && text !== value) {
        void this._try(() => this._actions.say(said(text)));
      }
    });
  }

  private async _try(what: (run: IRunInfo) => Promise<void>): Promise<void> {
    if (!this._run) {
      return;
    }
    let problem = '';
    try {
      await what(this._run);
    } catch (error) {
      problem = reason(error);
    }
    this._problem.hidden = !problem;
    setText(this._problem, problem);
  }

  private async _showEnvironment(wanted: () => boolean, looks = LOOKS): Promise<void> {
    const { trans, signal } = this._context;
    if (this._recorded || signal.aborted || !wanted()) {
      return;
    }
    try {
      const found = await this._actions.environment();
      if (signal.aborted || this._recorded) {
        return;
      }
      this._recorded = Boolean(found.python);
      this._environment.replaceChildren(...environmentNodes(found, this._context));
      if (!this._recorded && looks > 1) {
        clearTimeout(this._lookAgain);
        const again = () => void this._showEnvironment(wanted, looks - 1);
        this._lookAgain = setTimeout(again, LOOK_MS);
      }
    } catch (error) {
      setText(this._environment, trans('The environment cannot be read: %1', reason(error)));
    }
  }
}

function named(text: string): { label: string; text: string } {
  return { label: text, text };
}

function pairs(entries: readonly (readonly [string, string])[]): HTMLElement[] {
  return entries.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]);
}

function environmentNodes(found: IEnvironment, { trans }: IContext): HTMLElement[] {
  const { git, packages = {}, used = [] } = found;
  if (!found.python) {
    return [el('p', { class: 'jpd-muted' }, trans('Not recorded.'))];
  }
  const facts: [string, string][] = [[trans('Python'), `${found.python}, ${found.platform ?? ''}`]];
  if (git) {
    const state = git.dirty ? trans('changed: %1', git.changed.join(', ')) : trans('as committed');
    facts.push([
      trans('Commit'),
      [git.commit, git.branch, git.dirty === null ? '' : state].filter(Boolean).join(' · ')
    ]);
  } else {
    facts.push([trans('Commit'), trans('the folder is not in a git repository')]);
  }
  const all = Object.entries(packages);
  const own = all.filter(([name]) => used.includes(name.replace(/-/g, '_')) || used.includes(name));
  return [
    el('dl', { class: 'jpd-pairs' }, ...pairs([...facts, ...own])),
    el(
      'details',
      { class: 'jpd-folded' },
      el('summary', {}, trans('All %1 packages', all.length)),
      el('dl', { class: 'jpd-pairs' }, ...pairs(all))
    )
  ];
}
