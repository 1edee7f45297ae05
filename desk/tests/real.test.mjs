// The page of a real `sallyport connect`: requests by the edge, a real service behind it, and a browser in front.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { accessible, browsing, open, until } from './browser.mjs';
import { MISSING, place, PROGRAM, start } from './program.mjs';
import { SCRIPT, WEBHOOK } from './seed.mjs';

const run = promisify(execFile);
const held = browsing();

/** A service that keeps what it got, answers, and echoes messages of WebSockets. */
async function service(t) {
  const got = [];
  const server = createServer(async (request, response) => {
    const at = Date.now();
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    got.push({ at, method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(chunks) });
    if (request.url.startsWith('/svg')) {
      response.setHeader('content-type', 'image/svg+xml');
      response.setHeader('x-name', SCRIPT);
      return response.end(`<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1">${SCRIPT}</svg>`);
    }
    response.setHeader('content-type', 'application/json');
    return response.end(JSON.stringify({ got: request.url, number: got.length }));
  });
  server.on('upgrade', (request, socket) => {
    const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
    socket.on('error', () => socket.destroy());
    socket.on('data', (frame) => {
      const mask = frame.subarray(2, 6);
      const text = Buffer.from(frame.subarray(6, 6 + (frame[1] & 127)).map((byte, at) => byte ^ mask[at % 4]));
      socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
    });
    t.after(() => socket.destroy());
  });
  await new Promise((go) => server.listen(0, '127.0.0.1', go));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { got, port: server.address().port };
}

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

/** Sends one message by a WebSocket through the edge. */
async function socket(t, url, ca, text) {
  const { hostname, port } = new URL(url);
  const stream = connectTls({ host: '127.0.0.1', port: Number(port), servername: hostname, ca: await readFile(ca), ALPNProtocols: ['http/1.1'] });
  t.after(() => stream.destroy());
  stream.on('error', () => stream.destroy());
  await new Promise((go) => stream.once('secureConnect', go));
  const key = randomBytes(16).toString('base64');
  stream.write(`GET /socket HTTP/1.1\r\nhost: ${hostname}:${port}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`);
  await new Promise((go) => stream.once('data', go));
  const send = (words) => {
    const [body, mask] = [Buffer.from(words), Buffer.from([1, 2, 3, 4])];
    stream.write(Buffer.concat([Buffer.from([0x81, 0x80 | body.length]), mask, body.map((byte, at) => byte ^ mask[at % 4])]));
  };
  send(text);
  return send;
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
  const send = await socket(t, url, ca, 'first message');
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
