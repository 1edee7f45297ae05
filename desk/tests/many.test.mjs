// Ten thousand requests: the page holds few elements, and stays quick. Times are printed, since machines differ.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { browsing, open, until } from './browser.mjs';
import { Mock } from './mock.mjs';

const held = browsing();
const ROWS = 10_000;

test('ten thousand requests are scrolled through while more come in', async (t) => {
  const mock = await new Mock().start();
  t.after(() => mock.stop());
  mock.fill(ROWS, (id) => ({ path: `/item/${id}`, status: id % 17 ? 200 : 500, edge: id % 2 ? 'eu-1' : 'us-1', identity: id % 5 ? null : 'alice@example.test' }));
  const { page, close } = await open(held, mock.address);
  await until(page, (rows) => document.querySelector('.list-scroll')?.getAttribute('aria-rowcount') === String(rows + 1), ROWS);
  const idle = await page.evaluate(() => document.querySelectorAll('*').length);
  assert.ok(idle < 1500, `${idle} elements`);

  let sent = 0;
  const feed = setInterval(() => {
    for (let at = 0; at < 4; at += 1) {
      sent += 1;
      mock.add({ path: `/live/${sent}` });
    }
  }, 20);
  t.after(() => clearInterval(feed));
  // The time of the page's own thread says what a frame costs, also where other programs take the processors.
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const busy = async () => {
    const { metrics } = await cdp.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'TaskDuration').value * 1000;
  };
  const idleBusy = await busy();
  const { frames, most } = await page.evaluate(async () => {
    const list = document.querySelector('.list-scroll');
    const gaps = [];
    let elements = 0;
    let last = performance.now();
    for (let at = 0; at < 180; at += 1) {
      list.scrollTop += 400;
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      gaps.push(now - last);
      last = now;
      if (at % 20 === 0) elements = Math.max(elements, document.querySelectorAll('*').length);
    }
    return { frames: gaps, most: elements };
  });
  const spent = (await busy()) - idleBusy;
  clearInterval(feed);
  assert.ok(most < 1500, `${most} elements`);
  frames.sort((a, b) => a - b);
  const at = (share) => frames[Math.floor((frames.length - 1) * share)].toFixed(1);
  console.log(`# ${ROWS} rows, 200 more a second: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, worst ${at(1)} ms a frame, of it ${(spent / frames.length).toFixed(1)} ms of work; ${most} elements`);

  await page.click('.unseen-rows');
  // All of them are there: the last one can be reached, and each new one is counted.
  await until(page, (rows) => document.querySelector('.list-scroll').getAttribute('aria-rowcount') === String(rows), ROWS + sent + 1);
  await page.keyboard.press('G');
  await page.waitForSelector('#row-1.chosen');
  await page.fill('#filter', 'status:5xx');
  await page.waitForSelector(`.matches:has-text("${Math.floor(ROWS / 17)} of")`);
  await close();
});

test('thousands of messages of one socket', async (t) => {
  const mock = await new Mock().start();
  t.after(() => mock.stop());
  const id = mock.add({ path: '/socket', protocol: 'websocket', status: 101, state: 'open', duration_ms: null });
  for (let number = 1; number <= 5000; number += 1) {
    mock.all.get(id).frames.push({ number, at: new Date(number).toISOString(), from: 'service', kind: 'text', bytes: 9, text: `message ${number}` });
  }
  const { page, close } = await open(held, mock.address);
  await page.click(`#row-${id}`);
  await page.keyboard.press('3');
  await page.waitForSelector('text=5,000 messages');
  await page.focus('.frame-list');
  await page.evaluate(() => (document.querySelector('.frame-list').scrollTop = 1e9));
  await page.waitForSelector('.frame-row:has-text("message 5000")');
  assert.ok((await page.locator('.frame-row').count()) < 60);
  await close();
});
