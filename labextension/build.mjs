// Transpile for the federated bundle (`lib`), bundle the widget (`widget`), or shorten what JupyterLab's builder has
// copied (`copies`). Types are checked by `tsc`.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';
import trimmed from './uplot.js';

const target = 'es2020';
const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
const src = 'labextension/src';
// Nothing but our own modules reads them. Their long names would be a twentieth of what is shipped. `_n`, `_p`
// and `_np` are JupyterLab's: the plural and the context of a translation.
const privateMembers = /^_[a-z]\w\w/;

const uplot = {
  name: 'uplot',
  setup: ({ onLoad }) =>
    onLoad({ filter: /uPlot\.esm\.js$/ }, ({ path }) => ({
      contents: trimmed(readFileSync(path, 'utf8'))
    }))
};

if (process.argv[2] === 'widget') {
  // esbuild drops the licences of what it bundles; uPlot's (MIT) asks to be kept.
  const licence = readFileSync('node_modules/uplot/LICENSE', 'utf8').trim();
  const banner = `/*! uPlot\n${licence}\n*/`;
  // anywidget takes one ES module with everything in it, and one style sheet.
  await build({
    entryPoints: { widget: `${src}/widget.ts` },
    outdir: 'jupyter_dist/static',
    banner: { js: banner },
    bundle: true,
    format: 'esm',
    legalComments: 'none',
    minify: true,
    mangleProps: privateMembers,
    plugins: [uplot],
    target
  });
  await build({
    entryPoints: { widget: 'labextension/style/widget.css' },
    outdir: 'jupyter_dist/static',
    bundle: true,
    minify: true
  });
} else if (process.argv[2] === 'copies') {
  const built = 'jupyter_dist/labextension';
  const { scripts, devDependencies, files, ...read } = JSON.parse(
    readFileSync(`${built}/package.json`, 'utf8')
  );
  writeFileSync(`${built}/package.json`, JSON.stringify(read));
  // JupyterLab's server takes the version of the settings from it, and nothing else.
  const copy = `${built}/schemas/jupyter-dist/package.json.orig`;
  writeFileSync(copy, JSON.stringify({ version }));
} else {
  const files = readdirSync(src, { recursive: true })
    .filter(file => /\.tsx?$/.test(file) && !file.endsWith('.d.ts'))
    .map(file => `${src}/${file}`);
  rmSync('labextension/lib', { recursive: true, force: true });
  await build({
    entryPoints: files,
    outdir: 'labextension/lib',
    outbase: src,
    format: 'esm',
    define: { VERSION: JSON.stringify(version) },
    jsx: 'transform',
    mangleProps: privateMembers,
    sourcemap: true,
    target
  });
}
