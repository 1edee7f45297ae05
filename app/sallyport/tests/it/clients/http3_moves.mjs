// Downloads in Chromium over HTTP/3, changes the network in the middle, and prints what came as one line of JSON.
// usage: node http3_moves.mjs FOLDER CHROMIUM ADDRESS HOST:PORT SERVER COMMAND
//   FOLDER: where playwright-core is installed; HOST:PORT: the origin for which Chromium uses QUIC at once;
//   SERVER: the IP address of all names; COMMAND: changes the network.
import { execSync } from 'node:child_process';
import { createRequire } from 'node:module';

const [folder, chromium, address, origin, server, command] = process.argv.slice(2);
const { chromium: driver } = createRequire(`${folder}/`)('playwright-core');

const browser = await driver.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--enable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', `--host-resolver-rules=MAP *.localhost ${server}`,
    `--origin-to-force-quic-on=${origin}`],
});
const seen = {};
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  await page.exposeFunction('changeNetwork', () => void execSync(command));
  await page.goto(`${address}/before`);
  seen.before = (await page.textContent('body')).toLowerCase();
  seen.downloaded = await page.evaluate(async () => {
    const reader = (await fetch('/bytes/60000000')).body.getReader();
    let length = 0;
    let hasMoved = false;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return length;
      length += value.length;
      if (!hasMoved && length > 5_000_000) {
        hasMoved = true;
        await globalThis.changeNetwork();
      }
    }
  });
  seen.after = await page.evaluate(async () => (await (await fetch('/after')).text()).toLowerCase());
  seen.protocols = await page.evaluate(() => [
    performance.getEntriesByType('navigation')[0].nextHopProtocol,
    performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('/after')).nextHopProtocol,
  ]);
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
