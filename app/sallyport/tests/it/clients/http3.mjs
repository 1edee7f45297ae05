// Opens a page twice in Chromium, and prints by which protocol each of its loads came, as one line of JSON.
// usage: node http3.mjs FOLDER CHROMIUM ADDRESS HOST:PORT
//   FOLDER: where playwright-core is installed; HOST:PORT: the origin for which Chromium uses QUIC at once.
import { createRequire } from 'node:module';

const [folder, chromium, address, origin] = process.argv.slice(2);
const { chromium: driver } = createRequire(`${folder}/`)('playwright-core');

// Chromium takes *.localhost for ::1 first, where nothing listens.
const here = '--host-resolver-rules=MAP *.localhost 127.0.0.1';
const quic = origin ? [`--origin-to-force-quic-on=${origin}`] : [];
const browser = await driver.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--enable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', here, ...quic],
});
const seen = { protocols: [], texts: [], times: [] };
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  for (const path of ['/first', '/second']) {
    const begun = Date.now();
    await page.goto(address + path);
    seen.times.push(Date.now() - begun);
    seen.texts.push(await page.textContent('body'));
    seen.protocols.push(await page.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol));
  }
  const sent = await page.evaluate(async () => {
    const response = await fetch('/upload', { method: 'POST', body: 'y'.repeat(300_000) });
    return (await response.text()).length;
  });
  seen.uploaded = sent;
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
