import { readFileSync, readdirSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

const all = readdirSync('labextension/tests', { recursive: true, encoding: 'utf8' })
  .filter(name => /\.spec\.tsx?$/.test(name))
  .map(name => `labextension/tests/${name}`);
// A module that another file has imported can no longer be mocked.
const mocking = all.filter(path => /\bvi\.(mock|doMock)\(/.test(readFileSync(path, 'utf8')));

export default defineConfig({
  define: { VERSION: JSON.stringify(JSON.parse(readFileSync('package.json', 'utf8')).version) },
  test: {
    environment: 'jsdom',
    setupFiles: ['labextension/tests/setup.ts'],
    // Two cores are shared with everything else that `make test` runs.
    maxWorkers: 2,
    server: { deps: { inline: [/@jupyterlab/, /@jupyter\//, /@lumino/, /@rjsf/] } },
    projects: [
      // These files share one page, which setup.ts empties: making it anew took three quarters of the time.
      { extends: true, test: { name: 'shared', include: all.filter(path => !mocking.includes(path)), isolate: false } },
      { extends: true, test: { name: 'alone', include: mocking } }
    ]
  }
});
