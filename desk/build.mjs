// Builds the pages into dist/, or into the folder that is named. The same sources give the same bytes.
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, 'dist');
await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });

const made = await build({
  absWorkingDir: here,
  entryPoints: { inspector: 'src/inspector/main.tsx', desk: 'src/desk/main.tsx' },
  outdir: out,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['chrome123', 'firefox121', 'safari17.5'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  charset: 'utf8',
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
});
const styles = await build({
  absWorkingDir: here,
  entryPoints: ['styles/inspector.css', 'styles/desk.css'],
  outdir: out,
  bundle: true,
  minify: true,
  // Without a target, light-dark() and nesting stay as they are written.
  charset: 'utf8',
  logLevel: 'warning',
});
if (styles.errors.length) process.exit(1);
await copyFile(join(here, 'src/inspector/index.html'), join(out, 'index.html'));
await copyFile(join(here, 'src/desk/desk.html'), join(out, 'desk.html'));
await copyFile(join(here, 'src/mark.svg'), join(out, 'mark.svg'));

// The licences of what is inside go with it.
const packages = new Set();
for (const input of Object.keys(made.metafile.inputs)) {
  const found = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
  if (found) packages.add(found[1]);
}
let licences = '';
for (const name of [...packages].sort()) {
  const folder = join(here, 'node_modules', name);
  const { version } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  licences += `${name} ${version}\n\n${(await readFile(join(folder, 'LICENSE'), 'utf8')).trim()}\n\n`;
}
await writeFile(join(out, 'licences.txt'), `${licences.trim()}\n`);

const MOST = 45_000;
for (const page of ['inspector', 'desk']) {
  let sum = 0;
  for (const name of [`${page}.js`, `${page}.css`]) {
    const bytes = await readFile(join(out, name));
    const compressed = gzipSync(bytes, { level: 9 }).length;
    sum += compressed;
    console.log(`desk: ${name} ${bytes.length} bytes, ${compressed} compressed`);
  }
  console.log(`desk: ${page} together ${sum} bytes compressed, of at most ${MOST}`);
  if (sum > MOST) process.exit(1);
}
