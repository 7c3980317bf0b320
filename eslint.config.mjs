import js from '@eslint/js';
import jupyter from '@jupyter/eslint-plugin';
import prettier from 'eslint-config-prettier';
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

const hostImports = ['react', 'react-dom', '@jupyterlab/*', '@lumino/*'];

export default defineConfig([
  { ignores: ['labextension/lib', '**/*.{js,mjs,mts}'] },
  js.configs.recommended,
  ...tseslint.configs.recommended,
  { plugins: { jupyter } },
  jupyter.configs.recommended,
  {
    files: ['**/*.{ts,tsx}'],
    languageOptions: { parserOptions: { project: 'tsconfig.json' } },
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      // Our plugins need at once what they import: commands and models that others ask for.
      'jupyter/prefer-lazy-imports': 'off'
    }
  },
  {
    // The run view also lives where JupyterLab's modules cannot be reached: in a widget.
    files: ['labextension/src/run/**', 'labextension/src/widget.ts', 'labextension/src/widget/**'],
    rules: { 'no-restricted-imports': ['error', { patterns: hostImports }] }
  },
  {
    // Nobody reads a test's labels.
    files: ['labextension/tests/**'],
    rules: { 'jupyter/no-untranslated-string': 'off' }
  },
  prettier
]);
