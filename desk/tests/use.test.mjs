// The page as it is used: by keys, by the pointer, live, and when the program goes away.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { browsing, open, until } from './browser.mjs';
import { Mock } from './mock.mjs';
import { services } from './seed.mjs';

const held = browsing();

async function seeded(t, options) {
  const mock = await new Mock().start();
  t.after(() => mock.stop());
  const ids = services(mock);
  const opened = await open(held, mock.address, options);
  await opened.page.waitForSelector(`#row-${ids.webhook}`);
  return { mock, ids, ...opened };
}

const chosen = (page) => page.evaluate(() => document.querySelector('.row.chosen')?.id ?? null);
const isChosen = (page, id) => until(page, (row) => document.querySelector('.row.chosen')?.id === row, `row-${id}`);
const replays = (mock) => mock.requests.filter(({ path }) => path.endsWith('/replay'));

test('the keyboard alone reaches everything', async (t) => {
  const { mock, ids, page, close } = await seeded(t);
  const last = ids.webhook;
  await page.keyboard.press('j');
  await isChosen(page, last);
  await page.keyboard.press('j');
  await isChosen(page, last - 1);
  await page.keyboard.press('k');
  await isChosen(page, last);
  await page.keyboard.press('ArrowDown');
  await isChosen(page, last - 1);
  await page.keyboard.press('G');
  await isChosen(page, 1);
  await page.keyboard.press('g');
  await isChosen(page, last);

  // The list names its active row, and Enter goes into the details.
  await page.focus('.list-scroll');
  assert.equal(await page.getAttribute('.list-scroll', 'aria-activedescendant'), `row-${last}`);
  await page.keyboard.press('Enter');
  await until(page, () => document.activeElement.id === 'details');
  await page.keyboard.press('2');
  await page.waitForSelector('[role=tab][aria-selected=true]:has-text("Response")');
  await page.focus('[role=tab][aria-selected=true]');
  await page.keyboard.press('ArrowLeft');
  await page.waitForSelector('[role=tab][aria-selected=true]:has-text("Request")');
  await page.keyboard.press('Escape');
  await until(page, () => document.activeElement.className.includes('list-scroll'));

  // Copy as curl.
  await page.keyboard.press('c');
  await page.waitForSelector('.toast:has-text("curl")');
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^curl -X POST 'https:\/\/shop\.example\.test\/webhooks/);

  // A question before a POST; Escape is no.
  await page.keyboard.press('r');
  await page.waitForSelector('dialog:has-text("POST is not idempotent")');
  await until(page, () => document.activeElement.textContent === 'Cancel');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.equal(replays(mock).length, 0);
  await page.keyboard.press('r');
  await until(page, () => document.activeElement.textContent === 'Cancel');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await isChosen(page, last + 1);
  assert.deepEqual(JSON.parse(replays(mock)[0].body), { confirm: true });

  // Help, and the filter.
  await page.keyboard.press('?');
  await page.waitForSelector('.keys');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.keyboard.press('/');
  await page.keyboard.type('sta');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await until(page, () => document.querySelector('#filter').value === 'status:');
  await page.keyboard.type('50');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  await until(page, () => /^status:50\d $/.test(document.querySelector('#filter').value));
  await until(page, () => document.querySelectorAll('.row').length < 4);
  await close();
});

test('each stop of the Tab key shows where it is', async (t) => {
  const { ids, page, close } = await seeded(t, { motion: 'reduce' });
  await page.click(`#row-${ids.webhook}`);
  await page.waitForSelector('.tree');
  await page.evaluate(() => document.activeElement.blur());
  const seen = new Set();
  for (let at = 0; at < 60; at += 1) {
    await page.keyboard.press('Tab');
    const [name, isShown] = await page.evaluate(() => {
      const element = document.activeElement;
      const visible = (one) => {
        const { outlineStyle, outlineWidth, backgroundImage } = getComputedStyle(one);
        return (outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2) || backgroundImage.includes('gradient');
      };
      // The list marks its active row, and the filter its whole field.
      const marks = [element, element.closest('.field'), element.querySelector?.('.row.chosen')];
      return [`${element.tagName}.${element.className}#${element.id} ${element.textContent.slice(0, 20)}`, marks.some((one) => one && visible(one))];
    });
    if (name.startsWith('BODY')) break;
    seen.add(name);
    assert.ok(isShown, `no focus is seen at ${name}`);
  }
  assert.ok(seen.size > 20, [...seen].join('\n'));
  const moving = await page.evaluate(() => document.getAnimations().length);
  assert.equal(moving, 0, 'nothing moves for those who ask for less motion');
  await close();
});

test('edit and replay sends what was changed, and only that', async (t) => {
  const { mock, ids, page, close } = await seeded(t, { expected: [/status of 422/] });
  await page.click(`#row-${ids.webhook}`);
  await page.click('.actions button:has-text("Edit")');
  await page.waitForSelector('.editor textarea');
  await page.fill('.editor .wide input', '/webhooks/stripe?source=test');
  await page.fill('.editor textarea', '{"a": 1,}');
  await page.waitForSelector('text=Line 1, column 9');
  await page.fill('.editor textarea', '{"a": "ü"}');
  await page.fill('[aria-label="Name of header 2"]', 'bad name');
  await page.click('.editor button[type=submit]');
  await page.waitForSelector('text="bad name" is no name of a header.');
  await page.click('[aria-label="Remove header 2"]');
  await page.click('text=Add a header');
  await until(page, () => document.activeElement.matches('.header-row:last-child input:first-child'));
  await page.keyboard.type('x-test');
  await page.keyboard.press('Tab');
  await page.keyboard.type("it's $(new)");
  await page.click('.editor button[type=submit]');
  await page.click('dialog:has-text("not idempotent") .main');
  await isChosen(page, ids.webhook + 1);
  await page.waitForSelector('dialog', { state: 'detached' });
  const sent = JSON.parse(replays(mock).at(-1).body);
  assert.equal(sent.method, undefined);
  assert.equal(sent.path, '/webhooks/stripe?source=test');
  assert.equal(Buffer.from(sent.body_base64, 'base64').toString(), '{"a": "ü"}');
  assert.deepEqual(sent.headers.at(-1), { name: 'x-test', value: "it's $(new)" });
  assert.ok(!sent.headers.some(({ name }) => name === 'user-agent'));

  // What stays as it was is not sent: the body keeps its bytes.
  await page.click(`#row-${ids.form}`);
  await page.click('.actions button:has-text("Edit")');
  await page.fill('.editor .first-line input >> nth=0', 'PUT');
  await page.click('.editor button[type=submit]');
  await isChosen(page, ids.webhook + 2);
  assert.deepEqual(JSON.parse(replays(mock).at(-1).body), { method: 'PUT' });

  // A body that was cut cannot go again, and the program says so.
  await page.click(`#row-${ids.cut}`);
  await page.click('.actions button:has-text("Replay")');
  await page.waitForSelector('.toast.bad:has-text("cannot be sent again")');
  await close();
});

test('two are compared, and files are saved', async (t) => {
  const { mock, ids, page, close } = await seeded(t);
  await page.click(`#row-${ids.form}`);
  await page.keyboard.press('d');
  await page.click(`#row-${ids.webhook}`);
  await page.click(`text=Compare with #${ids.form}`);
  await page.waitForSelector('.diff .removed:has-text("POST /login")');
  await page.waitForSelector('.diff .added:has-text("POST /webhooks/stripe")');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  const save = async (selector) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click(selector)]);
    return { name: download.suggestedFilename(), bytes: await readFile(await download.path()) };
  };
  const all = await save('[aria-label="Download HAR"]');
  assert.equal(all.name, 'requests.har');
  assert.equal(JSON.parse(all.bytes).log.version, '1.2');
  assert.equal((await save('.actions button:has-text("HAR")')).name, `request-${ids.webhook}.har`);
  const body = await save('[aria-label="Download the body of the request"]');
  assert.deepEqual(body.bytes, mock.all.get(ids.webhook).request.body);
  await page.click('[aria-label="Clear all requests"]');
  await page.click('dialog .main');
  await page.waitForSelector('text=Waiting for the first request');
  assert.equal(mock.all.size, 0);
  mock.add({ path: '/first' });
  await page.waitForSelector('.row:has-text("/first")');
  await close();
});

test('bodies are read in their own ways', async (t) => {
  const { ids, page, close } = await seeded(t);
  const shows = async (id, tab, text) => {
    await page.evaluate(() => (document.querySelector('.list-scroll').scrollTop = 0));
    await page.click(`#row-${id}`);
    await page.keyboard.press(tab);
    await page.waitForSelector(`.panel :text("${text}")`);
  };
  // A number keeps its digits.
  await shows(ids.webhook, '1', '12345678901234567890');
  await page.click('.fold:has-text("lines")');
  await page.waitForSelector('.json-count:has-text("3 members")');
  await shows(ids.form, '1', '/cart?a=1');
  await shows(ids.multipart, '1', 'prices.csv');
  await shows(ids.xml, '2', 'First &amp; last');
  await shows(ids.broken, '2', 'Line 2, column 11');
  await shows(ids.failed, '2', 'There was no response');
  await shows(ids.denied, '4', 'admins only');
  await shows(ids.cut, '1', 'of 2.1 GB were kept');
  await shows(ids.large, '2', '400 more');
  await page.click('.panel button:text-is("Raw")');
  await page.waitForSelector('pre.code:has-text("orders")');
  await close();
});

test('what passes shows at once, and frames too', async (t) => {
  const { mock, ids, page, close } = await seeded(t);
  const id = mock.add({ path: '/slow', status: null, state: 'open', duration_ms: null, response: null });
  await page.waitForSelector(`#row-${id}:has-text("running")`);
  mock.change(id, { status: 204, state: 'complete', duration_ms: 77 });
  await page.waitForSelector(`#row-${id}:has-text("77 ms")`);

  await page.click(`#row-${ids.socket}`);
  await page.keyboard.press('3');
  await page.waitForSelector('text=40 messages');
  mock.frame(ids.socket, { from: 'client', text: '{"hello":"there"}' });
  await page.waitForSelector('text=41 messages');
  await page.fill('[aria-label="Words in messages"]', 'hello');
  await page.click('.frame-row:has-text("hello")');
  await page.waitForSelector('.frame-open .json-string:has-text("there")');

  // A list that is scrolled down stays where it is, and says what is new.
  await page.evaluate(() => (document.querySelector('.list-scroll').scrollTop = 200));
  await until(page, () => document.querySelector('.row') !== null);
  const shown = () => page.evaluate(() => document.elementFromPoint(200, 300).closest('.row').id);
  await page.evaluate(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go))));
  const before = await shown();
  for (let at = 0; at < 5; at += 1) mock.add({ path: `/more/${at}` });
  await page.waitForSelector('.unseen-rows:has-text("5 new")');
  assert.equal(await shown(), before);
  await page.click('.unseen-rows');
  await page.waitForSelector('.row:has-text("/more/4")');
  await close();
});

test('filters are asked of the program, kept, and completed', async (t) => {
  const { mock, page, context, close } = await seeded(t, { expected: [/status of 400/] });
  await page.fill('#filter', 'status:5xx');
  await page.waitForSelector('.matches:has-text("2 of")');
  mock.add({ path: '/new', status: 503 });
  mock.add({ path: '/other', status: 200 });
  await page.waitForSelector('.row:has-text("/new")');
  await page.waitForSelector('.matches:has-text("3 of")');
  await page.click('[aria-label="Saved filter"]');
  await page.click('[aria-label="Clear the filter"]');
  await page.waitForSelector('.row:has-text("/other")');
  const again = await context.newPage();
  await again.goto(mock.address);
  await again.focus('#filter');
  await again.click('[role=option]:has-text("status:5xx")');
  await again.waitForSelector('.matches:has-text("3 of")');
  await again.close();
  await page.fill('#filter', 'status:abc');
  await page.waitForSelector('#filter-problem:has-text("is no filter")');
  await close();
});

test('a program that goes away and comes back', async (t) => {
  const lost = [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_CONNECTION_RESET/, /ERR_EMPTY_RESPONSE/, /status of 401/];
  const { mock, ids, page, close } = await seeded(t, { expected: lost });
  const { port } = mock;
  await mock.stop();
  await page.waitForSelector('.banner:has-text("does not answer")');
  assert.ok(await page.isVisible(`#row-${ids.webhook}`), 'what is listed stays');
  mock.all.delete(ids.webhook);
  await mock.start(port);
  await page.waitForSelector('.banner', { state: 'detached' });
  await page.waitForSelector(`#row-${ids.webhook}`, { state: 'detached' });
  mock.add({ path: '/back' });
  await page.waitForSelector('.row:has-text("/back")');

  // The next start has another key.
  await mock.stop();
  mock.key = 'n'.repeat(43);
  await mock.start(port);
  await page.waitForSelector('text=This key does not fit');
  await page.fill('.gate input', mock.address);
  await page.click('.gate .main');
  await page.waitForSelector('.row:has-text("/back")');
  await close();
});

test('the key leaves the address, and nothing works without it', async (t) => {
  const { mock, page, close } = await seeded(t);
  assert.equal(page.url(), mock.url);
  assert.equal(await page.evaluate(() => history.length), 2);
  assert.equal(await page.evaluate(() => document.documentElement.outerHTML.includes('kkkk')), false);
  await page.reload();
  await page.waitForSelector('.row');
  await close();
  const { status } = await fetch(`${mock.url}api/exchanges`);
  assert.equal(status, 401);
});

test('the theme can be chosen, and stays', async (t) => {
  const { page, close } = await seeded(t);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.click('[aria-label="Theme: auto"]');
  await page.click('[aria-label="Theme: light"]');
  await page.waitForSelector('[aria-label="Theme: dark"]');
  assert.notEqual(await ground(), light);
  await page.reload();
  await page.waitForSelector('[aria-label="Theme: dark"]');
  // The bar between both halves moves by keys.
  await page.focus('[role=separator]');
  const before = await page.getAttribute('[role=separator]', 'aria-valuenow');
  await page.keyboard.press('ArrowRight');
  await until(page, (old) => document.querySelector('[role=separator]').getAttribute('aria-valuenow') !== old, before);
  await close();
});
