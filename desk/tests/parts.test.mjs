// The parts that need no browser.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { within } from './browser.mjs';

const desk = join(dirname(fileURLToPath(import.meta.url)), '..');

async function load(path) {
  const { outputFiles } = await build({ entryPoints: [join(desk, 'src', path)], bundle: true, format: 'esm', write: false });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString('base64')}`);
}

test('JSON keeps digits and repeated names, and says where it is wrong', async () => {
  const { parse } = await load('parts/json.ts');
  const node = parse(' {"a": 12345678901234567890, "a": [1e-7, true, null, "\\u00fc\\n"], "__proto__": {}} ');
  assert.deepEqual(node.members.map(([name]) => name), ['a', 'a', '__proto__']);
  assert.equal(node.members[0][1].text, '12345678901234567890');
  assert.equal(node.members[1][1].items[3].text, 'ü\n');
  const fails = (text, where) => assert.throws(() => parse(text), (error) => error.message.startsWith(where), text);
  fails('{"a":1,\n "b" 2}', 'Line 2, column 6');
  fails('[1,]', 'Line 1, column 4');
  fails('', 'Line 1, column 1');
  fails('01', 'Line 1, column 2');
  fails('"a\nb"', 'Line 1, column 1');
  fails('"\\x"', 'Line 1, column 1');
  fails('{} x', 'Line 1, column 4');
  fails('['.repeat(100_000), 'Line 1, column 202');
  for (const text of ['[]', '{}', '"x"', '-0.5', 'null', '[[{"a":[]}]]']) parse(text);
});

test('XML is indented, or left as it is', async () => {
  const { indent } = await load('parts/xml.ts');
  assert.equal(indent('<a><b x="1>2">t</b><c/><!-- n --></a>'), '<a>\n  <b x="1>2">t</b>\n  <c/>\n  <!-- n -->\n</a>');
  for (const text of ['<a><b></a>', 'a < b', '<a', '<!-- ', '</a>', '<a>'.repeat(3), '<![CDATA[ x']) assert.equal(indent(text), text);
  // The work grows with the length alone, whatever is written: else these would not end.
  for (const text of ['<!-- >', '<a "', '<a b="', '<?', '<![CDATA[', '<!']) indent(text.repeat(100_000).slice(0, 900_000));
});

test('numbers, times and texts', async () => {
  const { clock, size, duration, ms, countOf, plain, lines, toBase64, fromBase64 } = await load('parts/format.ts');
  assert.deepEqual([0, 999, 1000, 123_456, 2_147_483_648].map(size), ['0 B', '999 B', '1.0 KB', '123 KB', '2.1 GB']);
  assert.deepEqual([0.4, 4.24, 999, 1500, 63_500].map(duration), ['0.40 ms', '4.2 ms', '999 ms', '1.50 s', '1 m 03 s']);
  assert.deepEqual([9, 84.25, 0, null, undefined].map(ms), ['9.0 ms', '84.3 ms', '0.0 ms', '', '']);
  assert.deepEqual([0, 1, 2000].map((value) => countOf(value, 'rule')), ['0 rules', '1 rule', '2,000 rules']);
  assert.match(clock('2026-11-27T09:00:05.75Z'), /^\d\d:\d\d:05$/);
  assert.equal(clock('no time'), '--:--:--');
  assert.equal(plain('a\u202eb\u0000\u001b[31m\n'), 'a\\u{202e}b\\u{0}\\u{1b}[31m\\u{a}');
  assert.equal(lines('a\tb\r\nc\u0007'), 'a\tb\nc\\u{7}');
  const bytes = Uint8Array.from({ length: 70_000 }, (_, at) => at % 256);
  assert.equal(toBase64(bytes), Buffer.from(bytes).toString('base64'));
  assert.deepEqual(fromBase64(toBase64(bytes)), bytes);
});

test('a test waits for nothing without end', async () => {
  assert.equal(await within(Promise.resolve(7), 'nothing came'), 7);
  await assert.rejects(within(new Promise(() => {}), 'nothing came', 1), /^Error: nothing came within 0.001 s$/);
});

test('a command is what a shell runs, whatever a name holds', async () => {
  const { command, word } = await load('parts/shell.ts');
  const names = ['web', "it's", '$(touch /tmp/hit)', '`id`', 'a b', 'a\nb', '"; exit 1 #', '-rf', '*', 'ü', '\\'];
  for (const name of names) {
    const shown = execFileSync('sh', ['-c', `printf '%s' ${word(name)}`], { encoding: 'utf8' });
    assert.equal(shown, name);
    const line = command('set --', ['--name', name], ['--type', ''], ['', name]);
    const words = execFileSync('sh', ['-c', `${line}; printf '%s\\0' "$@"`], { encoding: 'utf8' }).split('\0').slice(0, -1);
    assert.deepEqual(words, name.startsWith('-') ? [`--name=${name}`, '--', name] : ['--name', name, name]);
  }
});

test('what is built is small, and asks nothing of others', async () => {
  const dist = join(desk, 'dist');
  const names = (await readdir(dist)).sort();
  assert.deepEqual(names, ['desk.css', 'desk.html', 'desk.js', 'index.html', 'inspector.css', 'inspector.js', 'licences.txt', 'mark.svg']);
  for (const page of ['inspector', 'desk']) {
    let sum = 0;
    for (const name of [`${page}.js`, `${page}.css`]) sum += gzipSync(await readFile(join(dist, name)), { level: 9 }).length;
    console.log(`# JavaScript and styles of the ${page}: ${sum} bytes compressed`);
    assert.ok(sum <= 45_000, `${sum} bytes`);
    const script = (await readFile(join(dist, `${page}.js`), 'utf8')).match(/https?:\/\/[a-z0-9.-]+\.[a-z]+/g) ?? [];
    assert.deepEqual([...new Set(script)].filter((found) => !found.includes('www.w3.org')), []);
  }
  for (const name of ['index.html', 'desk.html', 'inspector.css', 'desk.css', 'mark.svg']) {
    const text = (await readFile(join(dist, name), 'utf8')).replaceAll('http://www.w3.org/2000/svg', '');
    assert.doesNotMatch(text, /https?:|\/\/[a-z]|@import|url\(/, name);
  }
  assert.match(await readFile(join(dist, 'licences.txt'), 'utf8'), /preact 11[^]*MIT/);
});
