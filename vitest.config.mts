import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    setupFiles: ['labextension/tests/setup.ts'],
    include: ['labextension/tests/**/*.spec.{ts,tsx}'],
    // Two cores are shared with everything else that `make test` runs.
    maxWorkers: 2,
    server: { deps: { inline: [/@jupyterlab/, /@jupyter\//, /@lumino/, /@rjsf/] } }
  }
});
