// A real Chromium for the tests, and what every page must hold to.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before } from 'node:test';
import { chromium } from 'playwright-core';

export const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => existsSync(path));
const AXE = createRequire(import.meta.url)('axe-core').source;
export const LIMIT_MS = 60_000;

/** One browser for the tests of a file. */
export function browsing() {
  const held = {};
  before(async () => {
    assert.ok(CHROMIUM, 'chromium is not there; get it with: scripts/need chromium');
    held.browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
  });
  after(() => held.browser?.close());
  return held;
}

/** Opens a page of its own, which notes all that should not happen. */
export async function open(held, address, { width = 1280, height = 760, scheme = 'light', motion = 'no-preference', expected = [], trust = false, also = [] } = {}) {
  const context = await held.browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    reducedMotion: motion,
    permissions: ['clipboard-read', 'clipboard-write'],
    acceptDownloads: true,
    // The authority of a test's own installation is in no store of the machine.
    ignoreHTTPSErrors: trust,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  const troubles = [];
  const own = [new URL(address).origin, 'blob:', 'data:', ...also];
  page.on('console', (message) => {
    if (!['error', 'warning'].includes(message.type())) return;
    if (!expected.some((pattern) => pattern.test(message.text()))) troubles.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => troubles.push(`error: ${error.stack}`));
  page.on('request', (request) => {
    const url = request.url();
    if (!own.some((one) => url.startsWith(one))) troubles.push(`asked ${url}`);
  });
  page.on('dialog', (dialog) => {
    troubles.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  await page.goto(address);
  return {
    page,
    context,
    close: async () => {
      const hit = await page.evaluate(() => window.hit).catch(() => undefined);
      await context.close();
      assert.equal(hit, undefined, 'a script of what was captured ran');
      assert.deepEqual(troubles, []);
    },
  };
}

/** No violation of WCAG 2.2 A and AA, or of axe's own best practices. */
export async function accessible(page, what) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, {
      resultTypes: ['violations'],
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
    return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map(({ target, failureSummary }) => `${target} ${failureSummary}`).join('; ')}`);
  });
  assert.deepEqual(found, [], what);
}

/** Nothing sticks out at the side. */
export async function fits(page, what) {
  const [scrolled, width] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(scrolled <= width, `${what}: ${scrolled} points wide in ${width}`);
}

/** What a promise gives, or an error with the sentence after `ms`. */
export async function within(promise, sentence, ms = LIMIT_MS) {
  let late;
  const limit = new Promise((_, fail) => (late = setTimeout(() => fail(new Error(`${sentence} within ${ms / 1000} s`)), ms)));
  return Promise.race([promise, limit]).finally(() => clearTimeout(late));
}

/** Waits until a condition in the page holds. */
export const until = (page, condition, argument) => page.waitForFunction(condition, argument, { timeout: LIMIT_MS });
