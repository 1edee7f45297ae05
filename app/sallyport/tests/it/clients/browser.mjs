// Drives Chromium through logins, and prints what it saw as one line of JSON.
// usage: node browser.mjs FOLDER CHROMIUM FIRST SECOND E-MAIL PASSWORD
//   FOLDER: where playwright-core is installed; FIRST, SECOND: addresses of two sockets of one organisation.
import { createRequire } from 'node:module';

const [folder, chromium, first, second, email, password] = process.argv.slice(2);
const { chromium: driver } = createRequire(`${folder}/`)('playwright-core');
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

  const login = async (address) => {
    await page.goto(address);
    seen.provider = page.url();
    await page.fill('input[name=login]', email);
    await page.fill('input[name=password]', password);
    await Promise.all([page.waitForURL(address), page.click('button[type=submit]')]);
  };

  // A page deep inside is wanted, and is what comes after the login.
  const wanted = `${first}/deep/page?a=b`;
  await login(wanted);
  seen.first = await page.textContent('body');
  seen.cookies = (await context.cookies(first)).map(({ name, secure, httpOnly, sameSite, domain, path }) =>
    ({ name, secure, httpOnly, sameSite, domain, path }));

  // The second socket asks for no password.
  await page.goto(`${second}/other`);
  seen.secondUrl = page.url();
  seen.second = await page.textContent('body');

  // A program of the page learns that nobody else may use the login.
  seen.crossOrigin = await page.evaluate(async (address) => {
    try {
      await fetch(address, { method: 'POST', credentials: 'include', body: 'x' });
      return 'read';
    } catch {
      return 'refused';
    }
  }, `${first}/deep/page`);

  // Logged out: at both. The next visit is asked first, and then the provider is asked again.
  await page.goto(`${first}/.sallyport/logout`);
  await Promise.all([page.waitForURL((url) => url.hostname.startsWith('login.')), page.click('button')]);
  await page.goto(`${second}/other`);
  seen.asked = await page.textContent('main');
  await Promise.all([page.waitForURL((url) => !url.hostname.startsWith('login.')), page.click('main a')]);
  seen.afterLogout = page.url();
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
