// The pages that visitors see, of a real `sallyport up`: one look, both themes, small screens, no fault for axe.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { accessible, browsing, fits, open } from './browser.mjs';
import { MISSING, place, PROGRAM, start } from './program.mjs';

const run = promisify(execFile);
const held = browsing();
const NAME = 'Example Engineering';

/** An installation with a name, and sockets that nobody reaches, each for another reason. */
async function installation(t) {
  const { home, env } = await place(t);
  const up = start(t, env, ['up', '--listen-http', '127.0.0.1:0', '--listen', '127.0.0.1:0', '--site-name', NAME, '--data', join(home, 'data')]);
  await up.line('ready');
  const { api } = JSON.parse(await readFile(join(home, 'state/local.json'), 'utf8'));
  const sallyport = async (...args) => (await run(PROGRAM, [...args, '-o', 'json'], { env })).stdout;
  await sallyport('account', 'create', '--name', 'Test', '--email', 'test@example.com');
  await sallyport('login', '--email', 'test@example.com');
  await sallyport('provider', 'add', 'local');
  const urlOf = async (...args) => JSON.parse(await sallyport('socket', 'create', ...args)).url;
  const idle = await urlOf('--name', 'idle');
  const denied = await urlOf('--name', 'denied', '--deny', '127.0.0.0/8', '--deny', '::1/128');
  const guarded = await urlOf('--name', 'guarded', '--cloudauth', '--allowed-email-domains', 'example.com');
  const broken = await urlOf('--name', 'broken');
  // A service that closes each connection without an answer.
  const service = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  t.after(() => service.close());
  await new Promise((go) => service.once('listening', go));
  await start(t, env, ['tunnel', 'connect', 'broken', String(service.address().port), '--host', '127.0.0.1']).line('https://');
  const login = api.replace('//api.', '//login.').replace(/\/$/, '');
  const pages = [
    ['no such name', idle.replace(/\/\/[^.]+/, '//nobody-here-1'), 404],
    ['no tunnel', idle, 503],
    ['no answer of the service', broken, 502],
    ['not allowed', denied, 403],
    ['a login', guarded, 200],
    ['a code of a program', `${login}/device`, 200],
    ['a link that is over', `${login}/reset?link=over`, 404],
  ];
  return { pages, login };
}

test('the pages that visitors see', { skip: MISSING }, async (t) => {
  const { pages, login } = await installation(t);
  for (const [scheme, width] of [['light', 1280], ['dark', 390]]) {
    for (const [what, url, status] of pages) {
      const { page, close } = await open(held, url, { scheme, width, trust: true, also: [login], expected: [/status of [45]\d\d/] });
      const response = await page.reload();
      assert.equal(response.status(), status, what);
      assert.ok((await page.textContent('body')).includes(NAME), `${what}: whose page it is`);
      assert.equal(await page.locator('h1').count(), 1, what);
      assert.equal(await page.locator('script').count(), 0, what);
      await accessible(page, `${what}, ${scheme}`);
      await fits(page, `${what}, ${width} points wide`);
      await close();
    }
  }
});
