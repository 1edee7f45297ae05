// The page of a real `sallyport connect`: requests by the edge, a real service behind it, and a browser in front.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { accessible, browsing, open, until } from './browser.mjs';
import { service, webSocket } from './origin.mjs';
import { MISSING, place, PROGRAM, start } from './program.mjs';
import { WEBHOOK } from './seed.mjs';

const run = promisify(execFile);
const held = browsing();

/** An edge with control, an account, and a connector with its inspector. */
async function tunnel(t) {
  const { home, env } = await place(t);
  const up = start(t, env, ['up', '--listen-http', '127.0.0.1:0', '--listen', '127.0.0.1:0', '--data', join(home, 'data')]);
  await up.line('ready');
  const { ca } = JSON.parse(await readFile(join(home, 'state/local.json'), 'utf8'));
  await run(PROGRAM, ['account', 'create', '--name', 'Test', '--email', 'test@example.com'], { env });
  await run(PROGRAM, ['login', '--email', 'test@example.com'], { env });
  const origin = await service(t);
  const program = start(t, env, ['connect', String(origin.port), '--host', '127.0.0.1', '--inspect', '127.0.0.1:0', '-o', 'json']);
  const { url: address } = JSON.parse(await program.line('"inspector"'));
  const { url } = JSON.parse(await program.line('"attached"'));
  return { env: { ...env, CURL_CA_BUNDLE: ca }, ca, origin, program, address, url: url.replace(/\/$/, '') };
}

test('the page of a real tunnel', { skip: MISSING }, async (t) => {
  const { env, ca, origin, program, address, url } = await tunnel(t);
  const lost = [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_CONNECTION_RESET/, /status of 422/];
  const { page, context, close } = await open(held, address, { expected: lost });

  // What the page says to try works as it stands.
  await page.click('[aria-label="Copy the command"]');
  const line = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(line.includes(url), line);
  // The clock runs from the moment in which the service got the request.
  const seen = page.evaluate(
    () =>
      new Promise((go) => {
        const look = () => document.querySelector('.row') && go(Date.now());
        new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
      }),
  );
  await run('sh', ['-c', `${line} -sS`], { env });
  await page.waitForSelector('.row:has-text("/hello")');
  console.log(`# a request showed ${(await seen) - origin.got[0].at} ms after the service got it`);

  // A webhook, and its answer.
  const post = ['-sS', '--data-binary', WEBHOOK, '-H', 'content-type: application/json', '-H', 'authorization: Bearer s3cret', '-H', 'stripe-signature: t=1,v1=5257'];
  await run('curl', [...post, `${url}/webhooks/stripe?source=live`], { env });
  await page.click('.row:has-text("/webhooks/stripe")');
  await page.waitForSelector('.tree :text("invoice.payment_failed")');
  await page.waitForSelector('.headers tr:has-text("stripe-signature"):has-text("v1=5257")');
  assert.ok(!(await page.textContent('#app')).includes('s3cret'));
  await page.keyboard.press('2');
  await page.waitForSelector('.tree :text("/webhooks/stripe?source=live")');
  await page.keyboard.press('4');
  await page.waitForSelector('.timing');
  await accessible(page, 'a real exchange');
  await page.keyboard.press('1');

  // Again, as it was; then edited.
  await page.keyboard.press('r');
  await page.click('dialog .main');
  await page.waitForSelector('.details :text("sent again")');
  await until(page, () => document.querySelector('.details-head .status-text')?.textContent.startsWith('200'));
  const [first, second] = origin.got.filter(({ path }) => path.startsWith('/webhooks'));
  assert.deepEqual(second.body, first.body);
  assert.equal(second.headers['stripe-signature'], first.headers['stripe-signature']);
  assert.equal(second.headers.authorization, undefined, 'a secret that was not kept is not sent');
  await page.click('text=Compare both');
  await page.waitForSelector('dialog .diff, dialog :text("Both are equal")');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.keyboard.press('e');
  await page.fill('.editor textarea', '{"edited":"ü"}');
  await page.fill('.editor .wide input', '/webhooks/edited');
  await page.click('.editor button[type=submit]');
  await page.click('dialog:has-text("not idempotent") .main');
  await page.waitForSelector('.row.chosen:has-text("/webhooks/edited"):has-text("200")');
  assert.equal(origin.got.at(-1).body.toString(), '{"edited":"ü"}');

  // The copied command does the same by the edge.
  await page.keyboard.press('c');
  await page.waitForSelector('.toast:has-text("curl")');
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  await run('sh', ['-c', copied], { env });
  assert.equal(origin.got.at(-1).body.toString(), '{"edited":"ü"}');
  assert.equal(origin.got.at(-1).path, '/webhooks/edited');

  // The filter is the program's: bodies too.
  await page.fill('#filter', 'body:invoice.payment_failed method:POST');
  await page.waitForSelector('.matches:has-text("2 of 5")');
  await page.fill('#filter', 'status:what');
  await page.waitForSelector('#filter-problem');
  await page.fill('#filter', '');
  await page.keyboard.press('Escape');

  // Messages as they pass, and what a hostile service answers.
  const { send } = await webSocket(t, url, ca, 'first message');
  await page.click('.row:has-text("/socket")');
  await page.keyboard.press('3');
  await page.waitForSelector('.frame-row.client:has-text("first message")');
  send('second message');
  await page.waitForSelector('.frame-row.service:has-text("second message")');
  await run('curl', ['-sS', '-g', `${url}/svg?q=%3Cimg/src=x/onerror=window.hit=1%3E&u=javascript:window.hit=1`], { env });
  await page.click('.row:has-text("/svg")');
  await page.keyboard.press('2');
  await page.waitForSelector('.picture img, .body pre');
  assert.equal(await page.locator('#app script').count(), 0);

  const [download] = await Promise.all([page.waitForEvent('download'), page.click('[aria-label="Download HAR"]')]);
  const { log } = JSON.parse(await readFile(await download.path(), 'utf8'));
  assert.equal(log.version, '1.2');
  assert.ok(log.entries.length >= 6, `${log.entries.length} entries`);

  // Without the key there is nothing; the page says how to get it.
  const other = await context.newPage();
  await other.goto(new URL('/', address).href);
  await other.waitForSelector('text=The key is missing');
  await other.close();

  await page.click('[aria-label="Clear all requests"]');
  await page.click('dialog .main');
  await page.waitForSelector('text=Waiting for the first request');
  await program.stop();
  await page.waitForSelector('.banner');
  await close();
});
