// The desk of a real `sallyport up`: from the first account to a request of a real connector, and its cut.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { accessible, browsing, open, within } from './browser.mjs';
import { service, webSocket } from './origin.mjs';
import { MISSING, place, PROGRAM, start } from './program.mjs';

const run = promisify(execFile);
const held = browsing();
const EMAIL = 'ann@example.com';

test('the desk of a new installation leads to a first request, shows a connection and cuts it', { skip: MISSING }, async (t) => {
  const { home, env } = await place(t);
  const up = start(t, env, ['up', '--listen-http', '127.0.0.1:0', '--listen', '127.0.0.1:0', '--data', join(home, 'data')]);
  await up.line('ready');
  const { api, ca } = JSON.parse(await readFile(join(home, 'state/local.json'), 'utf8'));
  const desk = new URL(api.replace('//api.', '//desk.')).href;
  const { page, close } = await open(held, desk, { trust: true, expected: [/status of 401/] });

  await page.fill('[name=name]', 'Ann');
  await page.fill('[name=email]', EMAIL);
  await page.fill('[name=password]', env.SALLYPORT_PASSWORD);
  await page.click('button:has-text("Make the account")');
  await page.click('[aria-current=step] a:has-text("Create a socket")');
  await page.fill('[name=name]', 'web');
  await page.click('button:has-text("Create")');
  await page.waitForSelector('h1:has-text("web")');
  await page.click('nav >> text=Overview');

  // The commands of the steps work as they stand, with the port of this service.
  const line = (words) => page.textContent(`[aria-current=step] code:has-text("${words}")`);
  const origin = await service(t);
  const shell = { ...env, PATH: `${join(PROGRAM, '..')}:${env.PATH}` };
  await run('sh', ['-c', await line('sallyport login')], { env: shell });
  await page.waitForSelector('[aria-current=step]:has-text("A login on the machine")');
  const connector = start(t, env, ['tunnel', 'connect', 'web', String(origin.port), '--host', '127.0.0.1']);
  await connector.line('https://');
  await page.waitForSelector('[aria-current=step]:has-text("The first request")');
  const url = await page.getAttribute('[aria-current=step] a', 'href');
  await accessible(page, 'first steps');

  // Nobody logs in to this socket, so the audit log has no line of the request.
  await run('curl', ['-sSf', new URL('/hello', url).href], { env: { ...env, CURL_CA_BUNDLE: ca } });
  assert.equal(origin.got[0].path, '/hello');
  await page.waitForSelector('text=First steps', { state: 'detached' });

  const { closed } = await webSocket(t, url.replace(/\/$/, ''), ca, 'hello');
  await page.waitForSelector('table[aria-label="Open flows"] td:has-text("127.0.0.1")');
  await page.click('table[aria-label="Open flows"] button:has-text("Cut")');
  await page.click('dialog button.main');
  await within(closed, 'the connection that was cut did not end');
  await page.waitForSelector('table[aria-label="Open flows"]', { state: 'detached' });

  // What was done stands in the audit log, with a link to the socket's place.
  await page.click('nav >> text=Audit');
  await page.waitForSelector('table[aria-label="Events"] td:has-text("flow.kill")');
  await page.click('nav >> text=Sockets');
  await page.click('table[aria-label="Sockets"] a:has-text("web")');
  await page.waitForSelector('dd:has-text("2xx 1")');
  await page.waitForSelector('[aria-label="Ended lately"] td:has-text("GET /hello")');
  await accessible(page, 'a real socket');
  await page.click('button:has-text("Log out")');
  await page.waitForSelector('h1:has-text("Sign in")');
  await close();
});
