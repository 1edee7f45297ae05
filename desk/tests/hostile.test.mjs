// What others send is text wherever it is shown: nothing of it runs, loads, or moves the page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { browsing, fits, open, until } from './browser.mjs';
import { Mock } from './mock.mjs';
import { hostile, IMAGE, SCRIPT } from './seed.mjs';

const held = browsing();

for (const width of [1280, 390]) {
  test(`hostile content, ${width} points wide`, async (t) => {
    const mock = await new Mock().start();
    t.after(() => mock.stop());
    const ids = hostile(mock);
    mock.state.tunnels = [{ url: `https://${IMAGE}`, target: IMAGE }];
    mock.state.edges = [{ name: IMAGE, is_up: false }];
    const { page, close } = await open(held, mock.address, { width });
    await page.waitForSelector('.row');
    const markup = () =>
      page.evaluate(() => {
        // The page's own elements; a picture has an address that this page made.
        const images = [...document.images].map(({ src }) => src).filter((src) => !src.startsWith('blob:'));
        return [images, document.querySelectorAll('#app script, #app iframe, #app object, #app b, #app a, #app [onerror], #app [onload]').length];
      });
    // On a narrow screen the same is drawn in fewer columns: the longest are looked at.
    for (const id of width > 720 ? ids : [ids[0], ...ids.slice(-3)]) {
      await page.keyboard.press('Escape');
      await page.evaluate(() => (document.querySelector('.list-scroll').scrollTop = 0));
      await page.click(`#row-${id}`);
      await page.waitForSelector(`.details[aria-label="Request ${id}"]`);
      for (const tab of ['1', '2', '4']) {
        await page.keyboard.press(tab);
        await page.waitForSelector('.panel > *');
        assert.deepEqual(await markup(), [[], 0], `exchange ${id}, tab ${tab}`);
      }
      await fits(page, `exchange ${id}`);
    }

    // It is there, and as text.
    const first = ids[0];
    await page.keyboard.press('Escape');
    await page.keyboard.press('G');
    await page.focus('.list-scroll');
    await page.keyboard.press('Enter');
    await page.keyboard.press('1');
    await page.waitForSelector(`.details[aria-label="Request ${first}"]`);
    await until(page, (text) => document.querySelector('.details .path').textContent.includes(text), SCRIPT);
    await until(page, (text) => document.querySelector('.body pre')?.textContent.includes(text), IMAGE);
    // Characters that turn the writing, or control a terminal, are shown by name.
    await until(page, () => document.querySelector('.headers').textContent.includes('\\u{202e}gnp.exe\\u{7}\\u{1b}[31m'));

    // The editor and the comparison show them as text too.
    await page.click('.actions button:has-text("Edit")');
    await page.waitForSelector('.editor textarea');
    assert.equal(await page.inputValue('.editor textarea'), SCRIPT + IMAGE);
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'detached' });
    await page.keyboard.press('d');
    await page.keyboard.press('k');
    await page.keyboard.press('d');
    await page.waitForSelector('.diff');
    assert.deepEqual(await markup(), [[], 0]);
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'detached' });

    // Frames, opened.
    await page.keyboard.press('Escape');
    await page.keyboard.press('g');
    await page.focus('.list-scroll');
    await page.keyboard.press('Enter');
    await page.keyboard.press('3');
    for (const row of [0, 1]) {
      await page.click(`.frame-row >> nth=${row}`);
      await page.waitForSelector('.frame-open');
      assert.deepEqual(await markup(), [[], 0]);
    }

    // A filter that was kept by somebody, and what completes it.
    await page.fill('#filter', `${IMAGE} pa`);
    await page.waitForSelector('[role=option]');
    await page.fill('#filter', 'person:');
    await page.waitForSelector('[role=option]');
    assert.deepEqual(await markup(), [[], 0]);
    await close();
  });
}

test('the page runs nothing that is not its own', async (t) => {
  const mock = await new Mock().start();
  t.after(() => mock.stop());
  const { page, context } = await open(held, mock.address);
  await page.waitForSelector('text=Waiting for the first request');
  const refused = await page.evaluate(() => {
    const tries = [
      () => (document.createElement('div').innerHTML = '<b>x</b>'),
      () => (document.createElement('script').src = 'data:,1'),
      () => new DOMParser().parseFromString('<b>x</b>', 'text/html'),
      () => window.trustedTypes.createPolicy('x', {}),
    ];
    return tries.map((one) => {
      try {
        one();
        return false;
      } catch {
        return true;
      }
    });
  });
  assert.deepEqual(refused, [true, true, true, true]);
  await context.close();
});
