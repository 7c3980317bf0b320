import type { Kernel } from '@jupyterlab/services';
import { describe, expect, it } from 'vitest';
import { evaluate, KernelRefused, literal, unquote } from '../../src/model/notebooks';
import { bodyOf, cellFor } from '../../src/sidebar/insert';

/** A kernel that answers each expression from a table, and keeps what it was asked. */
function kernel(answers: Record<string, object>, status = 'ok') {
  const asked: Record<string, unknown>[] = [];
  const requestExecute = (content: Record<string, unknown>) => {
    asked.push(content);
    return { done: Promise.resolve({ content: { status, user_expressions: answers } }) };
  };
  return { asked, connection: { requestExecute } as unknown as Kernel.IKernelConnection };
}

const ok = (text: string) => ({ status: 'ok', data: { 'text/plain': text } });

describe('evaluate', () => {
  it('leaves no trace in the notebook', async () => {
    const { asked, connection } = kernel({ used: ok("'box'") });
    expect(await evaluate(connection, { used: 'x' })).toEqual({ used: "'box'" });
    expect(asked).toMatchObject([
      { code: '', silent: true, store_history: false, user_expressions: { used: 'x' } }
    ]);
  });

  it('rejects with what the kernel says, and with the cure where the package is missing', async () => {
    const error = (ename: string, evalue: string) => ({ use: { status: 'error', ename, evalue } });
    const said = kernel(error('InputError', "no cluster 'x'"));
    await expect(evaluate(said.connection, {})).rejects.toThrow("no cluster 'x'");
    const lacking = kernel(error('ModuleNotFoundError', "No module named 'jupyter_dist'"));
    await expect(evaluate(lacking.connection, {})).rejects.toThrow('%pip install jupyter-dist');
    const dying = kernel({}, 'aborted');
    await expect(evaluate(dying.connection, {})).rejects.toBeInstanceOf(KernelRefused);
  });
});

describe('Python texts', () => {
  it('are read and written', () => {
    expect(unquote("'a'")).toBe('a');
    expect(unquote('"it\'s"')).toBe("it's");
    expect(unquote("'C:\\\\x'")).toBe('C:\\x');
    expect(unquote('None')).toBeNull();
    expect(unquote(undefined)).toBeNull();
    expect(literal('use "x"\\')).toBe('"use \\"x\\"\\\\"');
  });

  it('begin with the magic, which must be the first line of its cell', () => {
    expect(cellFor({ kind: 'cluster', name: 'box' })).toMatch(/^%%distribute --cluster box\n/);
    expect(cellFor({ kind: 'backend', name: 'local' })).toMatch(/^%%distribute --backend local\n/);
    // What is typed next takes the place of the example, not of the magic's line.
    expect(bodyOf('%%distribute -np 2\na\nbc')).toEqual({
      start: { line: 1, column: 0 },
      end: { line: 2, column: 2 }
    });
    expect(bodyOf('%pip install x').start).toEqual({ line: 0, column: 14 });
  });
});
