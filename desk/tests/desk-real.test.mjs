// The desk of a real `sallyport up`: from the first account to the first request, and a socket's page that attacks it.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { accessible, browsing, LIMIT_MS, until } from './browser.mjs';
import { MISSING, place, PROGRAM, start } from './program.mjs';

const run = promisify(execFile);
const held = browsing();
const EMAIL = 'ann@example.com';

test('from a new installation to the first public request', { skip: MISSING }, async (t) => {
  const { home, env } = await place(t);
  const password = env.SALLYPORT_PASSWORD;
  const up = start(t, env, ['up', '--listen-http', 'none', '--listen', '127.0.0.1:0', '--data', join(home, 'data')]);
  await up.line('ready');
  const { ca, api } = JSON.parse(await readFile(join(home, 'state/local.json'), 'utf8'));
  const desk = api.replace('//api.', '//desk.');
  const service = createServer((request, response) => {
    response.setHeader('content-type', 'text/html');
    response.end('<h1>The shop</h1>');
  });
  await new Promise((go) => service.listen(0, '127.0.0.1', go));
  t.after(() => {
    service.closeAllConnections();
    service.close();
  });

  const context = await held.browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  const troubles = [];
  page.on('console', (message) => message.type() === 'error' && troubles.push(message.text()));
  page.on('pageerror', (error) => troubles.push(String(error)));
  await page.goto(desk);
  await page.fill('[name=name]', 'Ann');
  await page.fill('[name=email]', EMAIL);
  await page.fill('[name=password]', password);
  await page.click('button:has-text("Make the account")');
  await page.waitForSelector('[aria-current=step]:has-text("A socket")');
  assert.equal(await page.evaluate(() => document.cookie), '', 'no script sees the session');
  await page.click('a:has-text("Create a socket")');
  await page.fill('[name=name]', 'shop');
  await page.click('button:has-text("Create")');
  await page.waitForSelector('h1:has-text("shop")');
  const url = await page.textContent('dd >> nth=0');

  // What the page says to type works as it stands.
  await page.click('nav >> text=Overview');
  await page.waitForSelector('[aria-current=step]:has-text("A login on the machine")');
  const line = (await page.textContent('[aria-current=step] code')).split(' ');
  assert.equal(line.shift(), 'sallyport');
  await run(PROGRAM, [...line, '--ca', ca], { env });
  const connector = start(t, env, ['tunnel', 'connect', 'shop', String(service.address().port), '--host', '127.0.0.1', '-o', 'json']);
  await connector.line('"attached"');
  await page.waitForSelector('[aria-current=step]:has-text("The first request")');
  const visitor = await context.newPage();
  await visitor.goto(url);
  await visitor.waitForSelector('h1:has-text("The shop")');
  await page.waitForSelector('text=First steps', { state: 'detached' });

  // The page of the socket is of the same site as the desk, and its requests take the cookie along.
  const answers = await visitor.evaluate(async (at) => {
    const json = { method: 'POST', credentials: 'include', headers: { 'content-type': 'application/json' }, body: '{"name":"evil"}' };
    const form = { method: 'POST', credentials: 'include', mode: 'no-cors', headers: { 'content-type': 'text/plain' }, body: '{"name":"evil"}' };
    const tries = [[`${at}/v1/sockets`, json], [`${at}/v1/sockets`, form], [`${at}/v1/account`, { credentials: 'include' }], [`${at}/session`, { credentials: 'include' }]];
    return Promise.all(tries.map(([to, init]) => fetch(to, init).then((response) => response.type, () => 'refused')));
  }, desk);
  assert.deepEqual(answers, ['refused', 'opaque', 'refused', 'refused']);
  await visitor.evaluate((at) => {
    const form = Object.assign(document.createElement('form'), { method: 'post', action: `${at}/v1/sockets`, enctype: 'text/plain' });
    form.append(Object.assign(document.createElement('input'), { name: '{"name":"evil","x":"', value: '"}' }));
    document.body.append(form);
    form.submit();
  }, desk);
  await visitor.waitForURL(`${desk}/v1/sockets`);
  assert.match(await visitor.textContent('body'), /cross-origin/);
  await visitor.close();

  // Each place is there with real answers.
  for (const name of ['Sockets', 'Tunnels', 'Edges', 'Policies', 'People', 'Tokens', 'Domains', 'Audit']) {
    await page.click(`nav >> text=${name}`);
    await page.waitForSelector(`h1:has-text("${name}")`);
    await until(page, () => ![...document.querySelectorAll('[role=status]')].some(({ textContent }) => textContent === 'Loading…'));
    assert.equal(await page.$('main [role=alert]'), null, name);
    assert.ok(!(await page.textContent('main')).includes('evil'), name);
    await accessible(page, name);
  }
  await page.waitForSelector('td:has-text("socket.create")');
  await page.click('nav >> text=Policies');
  await page.fill('[name=socket]', 'shop');
  await page.click('button:has-text("Test")');
  await page.waitForSelector('.tested:has-text("allowed")');

  await page.click('text=Log out');
  await page.waitForSelector('h1:has-text("Sign in")');
  assert.deepEqual(troubles, []);
  await context.close();
});
