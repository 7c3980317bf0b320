import { CommandRegistry } from '@lumino/commands';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { keepKeys } from '../../src/run/keys';

describe('keepKeys', () => {
  const cut = vi.fn();
  const save = vi.fn();
  let commands: CommandRegistry;
  let process: (event: KeyboardEvent) => void;
  let notebook: HTMLElement;

  beforeEach(() => {
    cut.mockClear();
    save.mockClear();
    commands = new CommandRegistry();
    const describedBy = { args: { type: 'object', properties: {} } };
    commands.addCommand('cut', { execute: cut, describedBy });
    commands.addCommand('save', { execute: save, describedBy });
    commands.addKeyBinding({ command: 'cut', keys: ['X'], selector: '.jp-Notebook :focus' });
    commands.addKeyBinding({ command: 'save', keys: ['Ctrl S'], selector: 'body' });
    // As JupyterLab listens: at the document, on the way down.
    process = event => commands.processKeydownEvent(event);
    document.addEventListener('keydown', process, true);
    notebook = document.createElement('div');
    notebook.className = 'jp-Notebook';
    notebook.innerHTML =
      '<button id="cell"></button><div id="view"><button id="ours"></button></div>';
    document.body.append(notebook);
  });

  afterEach(() => {
    document.removeEventListener('keydown', process, true);
    notebook.remove();
  });

  function press(id: string, key: string, keyCode: number, ctrlKey = false): void {
    const target = document.getElementById(id);
    target?.focus();
    const event = new KeyboardEvent('keydown', {
      key,
      code: `Key${key.toUpperCase()}`,
      keyCode,
      ctrlKey,
      bubbles: true,
      cancelable: true
    });
    target?.dispatchEvent(event);
  }

  it('keeps plain keys from shortcuts, and leaves Ctrl+S and all other places alone', () => {
    press('ours', 'x', 88);
    expect(cut).toHaveBeenCalledTimes(1); // nobody keeps them yet
    const kept = keepKeys(document.getElementById('view') as HTMLElement);
    press('ours', 'x', 88);
    expect(cut).toHaveBeenCalledTimes(1);
    press('ours', 's', 83, true);
    expect(save).toHaveBeenCalledTimes(1);
    press('cell', 'x', 88);
    expect(cut).toHaveBeenCalledTimes(2);
    kept.dispose();
  });
});
