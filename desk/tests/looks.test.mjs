// Each state of the page in light and dark, on a wide and on a narrow screen: readable for all, and nothing sticks out.
import { test } from 'node:test';
import { accessible, browsing, fits, open } from './browser.mjs';
import { Mock } from './mock.mjs';
import { services } from './seed.mjs';

const held = browsing();
const USUAL = ['the list', 'a request', 'the editor', 'the comparison'];

for (const scheme of ['light', 'dark']) {
  for (const width of [1280, 390]) {
    test(`the states of the page, ${scheme}, ${width} points wide`, async (t) => {
      const mock = await new Mock().start();
      t.after(() => mock.stop());
      const ids = services(mock);
      const lost = [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_CONNECTION_RESET/, /status of 400/];
      const { page, close } = await open(held, mock.address, { width, scheme, expected: lost });
      // Every state is judged in each theme and in each width; in the other two pairs the usual ones are.
      const isWhole = (scheme === 'light') === (width > 720);
      const look = async (what) => {
        if (isWhole || USUAL.includes(what)) await accessible(page, what);
        await fits(page, what);
      };
      const back = () => page.keyboard.press('Escape');
      const choose = async (id) => {
        await back();
        await page.evaluate(() => (document.querySelector('.list-scroll').scrollTop = 0));
        await page.click(`#row-${id}`);
        await page.waitForSelector(`.details[aria-label="Request ${id}"]`);
      };
      await page.waitForSelector(`#row-${ids.webhook}`);
      await look('the list');
      await choose(ids.webhook);
      await page.waitForSelector('.tree');
      await look('a request');
      await page.keyboard.press('4');
      await page.waitForSelector('.timing');
      await look('timing and route');
      await page.keyboard.press('2');
      await choose(ids.image);
      await page.waitForSelector('.picture img');
      await look('an image');
      await page.click('button:has-text("Hex")');
      await page.waitForSelector('.hex-row');
      await look('bytes');
      await page.keyboard.press('1');
      await choose(ids.multipart);
      await page.waitForSelector('.part');
      await look('a multipart body');
      await choose(ids.socket);
      await page.keyboard.press('3');
      await page.click('.frame-row >> nth=1');
      await page.waitForSelector('.frame-open');
      await look('messages');
      await choose(ids.webhook);
      await page.keyboard.press('e');
      await page.waitForSelector('.editor textarea');
      await look('the editor');
      await back();
      await page.keyboard.press('r');
      await page.waitForSelector('dialog:has-text("not idempotent")');
      await look('the question');
      await page.click('dialog .main');
      await page.click('text=Compare both');
      await page.waitForSelector('.diff');
      await look('the comparison');
      await back();
      await page.waitForSelector('dialog', { state: 'detached' });
      await page.keyboard.press('?');
      await page.waitForSelector('.keys');
      await look('the keys');
      await back();
      await page.waitForSelector('dialog', { state: 'detached' });
      await back();
      await page.fill('#filter', 's');
      await page.waitForSelector('[role=option]');
      await look('completion');
      await page.fill('#filter', 'status:abc');
      await page.waitForSelector('#filter-problem');
      await look('a wrong filter');
      await page.fill('#filter', 'nothing-has-this');
      await page.waitForSelector('text=No request matches');
      await look('no match');
      await page.fill('#filter', '');
      await mock.stop();
      await page.waitForSelector('.banner');
      await look('no connection');
      await close();
    });

    test(`nothing yet, and no key, ${scheme}, ${width} points wide`, async (t) => {
      const mock = await new Mock().start();
      t.after(() => mock.stop());
      const { page, close } = await open(held, mock.address, { width, scheme });
      await page.waitForSelector('text=curl https://calm-bay-1000.example.test/hello');
      await accessible(page, 'nothing yet');
      await fits(page, 'nothing yet');
      await close();
      const other = await open(held, mock.url, { width, scheme });
      await other.page.waitForSelector('text=The key is missing');
      await accessible(other.page, 'no key');
      await fits(other.page, 'no key');
      await other.close();
    });
  }
}
