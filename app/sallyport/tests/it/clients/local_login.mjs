// Drives Chromium through a login with a password and one-time codes, and prints what it saw as one line of JSON.
// usage: node local_login.mjs FOLDER CHROMIUM SOCKET LINK E-MAIL PASSWORD
//   FOLDER: where playwright-core is installed; LINK: with which the person sets the password.
import { createHmac } from 'node:crypto';
import { createRequire } from 'node:module';

const [folder, chromium, socket, link, email, password] = process.argv.slice(2);
const { chromium: driver } = createRequire(`${folder}/`)('playwright-core');

// RFC 6238, written once more.
const totp = (secret) => {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
  const bits = [...secret.replaceAll(' ', '')].map((letter) => letters.indexOf(letter).toString(2).padStart(5, '0'));
  const bytes = bits.join('').match(/.{8}/g).map((byte) => parseInt(byte, 2));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000)));
  const hash = createHmac('sha1', Buffer.from(bytes)).update(counter).digest();
  const at = hash[19] & 15;
  return String((hash.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, '0');
};

const browser = await driver.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const seen = {};
try {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  // What a page of ours may not do by its own policy, it must not try.
  seen.refused = [];
  page.on('console', (message) => {
    if (message.text().includes('Content Security Policy')) seen.refused.push(message.text());
  });
  const title = (text) => page.waitForSelector(`h1:text-is("${text}")`);
  const wanted = `${socket}/deep/page?a=b`;
  const passwordStep = async () => {
    await page.goto(wanted);
    await title('Log in');
    await page.fill('input[name=email]', email);
    await page.fill('input[name=password]', password);
    await page.click('button');
  };

  await page.goto(link);
  await page.fill('input[name=password]', password);
  await page.fill('input[name=again]', password);
  await page.click('button');
  await title('Password set');
  seen.wayOn = await page.getAttribute('a.act', 'href');

  await page.goto(wanted);
  await title('Log in');
  seen.button = await page.evaluate(() => getComputedStyle(document.querySelector('button')).backgroundColor);
  await page.fill('input[name=email]', email);
  await page.fill('input[name=password]', 'not the password');
  await page.click('button');
  seen.wrongPassword = await page.textContent('[role=alert]');
  seen.kept = await page.inputValue('input[name=email]');

  await passwordStep();
  await title('Set up your codes');
  seen.picture = await page.locator('svg.code').boundingBox();
  await page.fill('input[name=code]', totp(await page.textContent('#secret')));
  await page.click('button');
  await title('Your recovery codes');
  const recovery = await page.locator('code.recovery').allTextContents();
  seen.recovery = recovery.length;
  await Promise.all([page.waitForURL(wanted), page.click('button')]);
  seen.first = await page.textContent('body');

  // The person's own page, from which all logins end.
  await page.goto(new URL('/account', link).href);
  await title('Your account');
  seen.account = await page.textContent('main');
  await page.click('form:has(input[value=sign-out]) button');
  await title('Logged out');

  await passwordStep();
  await title('Your code');
  await page.fill('input[name=code]', '000000');
  await page.click('button');
  seen.wrong = await page.textContent('strong');
  await page.fill('input[name=code]', recovery[0]);
  await Promise.all([page.waitForURL(wanted), page.click('button')]);
  seen.second = await page.textContent('body');
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
