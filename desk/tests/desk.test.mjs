// The desk in a real Chromium: each place in both themes and widths, by keyboard, with hostile names, and out of view.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { test } from 'node:test';
import { accessible, browsing, fits, open, until } from './browser.mjs';
import { ControlMock, filled, HOSTILE, idOf, stats } from './control.mjs';

const held = browsing();
/** Screenshots are kept where SCREENSHOTS says. */
const KEPT = process.env.SCREENSHOTS;
const PLACES = [
  ['/', 'Overview'],
  ['/sockets', 'Sockets'],
  ['/sockets/new', 'New socket'],
  [`/sockets/${idOf(1)}`, 'shop'],
  [`/sockets/${idOf(1)}/plan`, 'Plan of the steering'],
  ['/tunnels', 'Tunnels'],
  ['/flows', 'Flows'],
  ['/edges', 'Edges'],
  [`/edges/${idOf(20)}`, 'eu-1'],
  ['/policies', 'Policies'],
  ['/policies/new', 'New policy'],
  [`/policies/${idOf(40)}`, 'staff'],
  ['/providers', 'Providers'],
  ['/providers/new', 'New provider'],
  ['/providers/work', 'work'],
  ['/providers/local', 'local'],
  ['/service-tokens', 'Service tokens'],
  [`/service-tokens/${idOf(70)}`, 'shop'],
  ['/ssh', 'SSH'],
  ['/catchment', 'Catchment'],
  ['/people', 'People'],
  ['/tokens', 'Tokens'],
  ['/domains', 'Domains'],
  ['/domains/app.example.com', 'app.example.com'],
  ['/audit', 'Audit'],
  ['/account', 'Account'],
  ['/nothing', 'No such page'],
];

const started = async (t, change = () => {}) => {
  const mock = new ControlMock();
  change(mock);
  await mock.start();
  t.after(() => mock.stop());
  return mock;
};

/** Goes to a place without loading the page again, and waits until all of it is there. */
async function visit(page, path, title) {
  await page.evaluate((to) => {
    history.pushState(null, '', to);
    dispatchEvent(new PopStateEvent('popstate'));
  }, path);
  await until(page, (wanted) => document.querySelector('h1')?.textContent === wanted, title);
  await until(page, () => ![...document.querySelectorAll('[role=status]')].some(({ textContent }) => textContent === 'Loading…'));
}

/** Lets the page read again at once, as when its tab comes into view. */
const readAgain = (page) => page.evaluate(() => void document.dispatchEvent(new Event('visibilitychange')));

/** No field is wider than its place, the place that is shown stands in view among the places, and what may be done ends at one line. */
async function orderly(page, what) {
  const found = await page.evaluate(() => {
    const box = (element) => element.getBoundingClientRect();
    const troubles = [];
    for (const field of document.querySelectorAll('.form-field')) {
      for (const one of field.querySelectorAll('input, select, textarea')) if (box(one).right > box(field).right + 1) troubles.push(`${one.name} is wider than its place`);
    }
    const [places, here] = [document.querySelector('.places'), document.querySelector('.places [aria-current]')];
    if (here && (box(here).left < box(places).left || box(here).right > box(places).right + 1)) troubles.push(`${here.textContent} is out of view`);
    for (const table of document.querySelectorAll('table')) {
      const ends = [...table.querySelectorAll('td:last-child > button')].map((button) => Math.round(innerWidth > 720 ? box(table).right - box(button).right : 13));
      if (ends.some((end) => end !== 13)) troubles.push(`buttons of ${table.ariaLabel} end ${ends} points before it`);
    }
    for (const actions of document.querySelectorAll('.place-actions')) {
      const tops = [...actions.children].map((one) => Math.round(box(one).top + box(one).height / 2));
      if (new Set(tops).size > 1) troubles.push(`what may be done is in several lines: ${tops}`);
    }
    return troubles;
  });
  assert.deepEqual(found, [], what);
}

for (const scheme of ['light', 'dark']) {
  for (const width of [1280, 390]) {
    test(`every place, ${scheme}, ${width} points wide`, async (t) => {
      const mock = await started(t);
      const { page, close } = await open(held, mock.url, { width, scheme });
      await page.waitForSelector('h1');
      for (const [path, title] of PLACES) {
        await visit(page, path, title);
        assert.equal(await page.title(), `${title} · Sallyport`);
        for (const summary of await page.$$('summary')) await summary.click();
        await accessible(page, path);
        await fits(page, path);
        await orderly(page, path);
        if (KEPT) {
          await mkdir(KEPT, { recursive: true });
          await page.screenshot({ path: `${KEPT}/${path.slice(1).replaceAll('/', '-') || 'overview'}-${scheme}-${width}.png` });
        }
      }
      await close();
    });

    test(`before a login, ${scheme}, ${width} points wide`, async (t) => {
      const mock = await started(t, (one) => (one.account = null));
      const { page, close } = await open(held, mock.url, { width, scheme });
      await page.waitForSelector('h1:has-text("Sign in")');
      await accessible(page, 'sign in');
      await fits(page, 'sign in');
      mock.isNew = true;
      await page.reload();
      await page.waitForSelector('h1:has-text("Make the first account")');
      await accessible(page, 'first account');
      await fits(page, 'first account');
      await close();
    });
  }
}

test('a login asks for a code where the account uses codes, and says what is wrong', async (t) => {
  const mock = await started(t);
  const { account } = mock;
  mock.account = null;
  const refuse = (code, detail) => [401, { status: 401, code, detail }];
  mock.on['POST /session'] = ({ password, code }) => {
    if (password !== 'right') return refuse('wrong-login', 'the e-mail address or the password is wrong');
    if (!code) return refuse('code-needed', 'this account requires a code of its authenticator too');
    mock.account = account;
    return [200, { account, is_new: false, needs_setup_token: false }];
  };
  const { page, close } = await open(held, mock.url, { expected: [/status of 401/] });
  await page.fill('[name=email]', 'ann@example.com');
  await page.fill('[name=password]', 'wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[role=alert]:has-text("The e-mail address or the password is wrong.")');
  assert.equal(await page.inputValue('[name=email]'), 'ann@example.com', 'what was typed stays');
  await page.fill('[name=password]', 'right');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[name=code]');
  await accessible(page, 'code');
  await page.fill('[name=code]', '123456');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:has-text("Overview")');
  await close();
});

test('a new installation leads from the first account to the first request', async (t) => {
  const mock = await started(t);
  const { account } = mock;
  mock.account = null;
  mock.isNew = true;
  Object.assign(mock.data, { '/v1/sockets': { items: [] }, '/v1/audit': { items: [] }, '/v1/certificates': { items: [] }, [`/v1/sockets/${idOf(1)}/stats`]: stats(1) });
  mock.on['POST /v1/accounts'] = () => [201, account];
  mock.on['POST /session'] = () => [200, { account: (mock.account = account), is_new: false, needs_setup_token: false }];
  const made = filled()['/v1/sockets'].items[0];
  mock.on['POST /v1/sockets'] = () => {
    mock.data['/v1/sockets'] = { items: [{ ...made, tunnels_up: 0, tunnels_total: 0 }] };
    return [201, made];
  };
  const { page, close } = await open(held, mock.url);
  await page.fill('[name=name]', 'Ann');
  await page.fill('[name=email]', 'ann@example.com');
  await page.fill('[name=password]', 'correct horse battery');
  await page.click('button:has-text("Make the account")');
  await page.waitForSelector('[aria-current=step]:has-text("A socket")');
  await accessible(page, 'first steps');
  await page.click('a:has-text("Create a socket")');
  await page.waitForSelector('h1:has-text("New socket")');
  await page.fill('[name=name]', 'my shop');
  await page.waitForSelector("code:has-text(\"sallyport socket create --name 'my shop' --type http\")");
  await page.click('button:has-text("Create")');
  await page.waitForSelector('h1:has-text("shop")');
  assert.deepEqual(mock.asked.find(({ method, path }) => method === 'POST' && path === '/v1/sockets').body, { name: 'my shop', type: 'http' });
  await page.click('nav >> text=Overview');
  await page.waitForSelector('[aria-current=step]:has-text("A login on the machine")');
  await page.waitForSelector('code:has-text("sallyport login --api")');
  mock.data['/v1/sockets'] = { items: [made] };
  await page.waitForSelector('[aria-current=step]:has-text("The first request")');
  // The audit log stays empty: nobody logs in to this socket.
  // The edge's own error is no answer of the service.
  mock.data[`/v1/sockets/${idOf(1)}/stats`] = { ...stats(1), requests: { '5xx': 1 }, refusals: { 'no-tunnel': 1 }, bytes_out: 900 };
  const counted = page.waitForResponse((response) => response.url().endsWith('/stats'));
  await readAgain(page);
  await counted;
  await readAgain(page);
  assert.ok(await page.isVisible('[aria-current=step]:has-text("The first request")'));
  mock.data[`/v1/sockets/${idOf(1)}/stats`] = { ...stats(1), requests: { '2xx': 1, '5xx': 1 }, first_byte: { p50_ms: 3, p99_ms: 3 } };
  await readAgain(page);
  await page.waitForSelector('text=First steps', { state: 'detached' });
  // An edge forgets its counts when it ends, and the browser does not; another account of the browser has not started.
  mock.data[`/v1/sockets/${idOf(1)}/stats`] = stats(1);
  const overview = async () => {
    const counted = page.waitForResponse((response) => response.url().endsWith('/stats'));
    await page.reload();
    await counted;
    await page.waitForSelector('.numbers');
  };
  await overview();
  assert.equal(await page.$('text=First steps'), null);
  mock.account = { ...account, id: idOf(92), email: 'bob@example.com' };
  await overview();
  await page.waitForSelector('text=First steps');
  await close();
});

test('names of others are text everywhere', async (t) => {
  const mock = await started(t, (one) => (one.data = filled(HOSTILE)));
  const { page, close } = await open(held, mock.url);
  await page.waitForSelector('h1');
  for (const [path, title] of PLACES) {
    const isNamed = [`/sockets/${idOf(1)}`, `/service-tokens/${idOf(70)}`].includes(path);
    await page.goto(new URL(path, mock.url).href);
    if (!isNamed) await page.waitForSelector(`h1:has-text("${title}")`);
    await until(page, () => document.querySelector('h1') && ![...document.querySelectorAll('[role=status]')].some(({ textContent }) => textContent === 'Loading…'));
    const markup = await page.evaluate(() => document.querySelectorAll('#app script, #app img, #app iframe, #app [onerror]').length);
    assert.equal(markup, 0, path);
    const text = await page.textContent('#app');
    assert.ok(!text.includes('\u202e'), `${path}: characters that turn the writing are shown by name`);
    const links = await page.$$eval('a', (all) => all.map(({ protocol }) => protocol));
    assert.ok(links.every((protocol) => /^https?:$/.test(protocol)), `${path}: ${links}`);
    await fits(page, path);
  }
  await page.goto(new URL('/sockets', mock.url).href);
  await until(page, () => document.querySelector('#app').textContent.includes('<img src=x onerror='));
  // A socket whose address is no web address gets no link.
  mock.data[`/v1/sockets/${idOf(1)}`].url = 'javascript:window.hit=1';
  await page.goto(new URL(`/sockets/${idOf(1)}`, mock.url).href);
  await until(page, () => document.querySelector('dd')?.textContent === 'javascript:window.hit=1');
  assert.equal(await page.$('dd a[href^="javascript"]'), null);
  await close();
});

test('the keyboard reaches everything, and a dialog gives the focus back', async (t) => {
  const mock = await started(t);
  mock.on[`DELETE /v1/tokens/${idOf(50)}`] = () => [200, {}];
  const { page, close } = await open(held, new URL('/tokens', mock.url).href);
  await page.waitForSelector('td:has-text("shop")');
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'To the content');
  const links = await page.$$('nav a');
  await links[1].focus();
  await page.keyboard.press('Enter');
  await until(page, () => document.activeElement.textContent === 'Sockets' && document.activeElement.matches('h1'));
  await page.goBack();
  await until(page, () => document.activeElement.textContent === 'Tokens' && document.activeElement.matches('h1'));
  await page.waitForSelector('td:has-text("shop")');
  await page.evaluate(() => {
    const first = document.querySelector('.skip');
    first.focus();
    first.blur();
  });
  const seen = new Set();
  for (let step = 0; step < 40 && !seen.has('Delete'); step += 1) {
    await page.keyboard.press('Tab');
    seen.add(await focused());
    const isVisible = await page.evaluate(() => {
      const { outlineStyle } = getComputedStyle(document.activeElement);
      return outlineStyle !== 'none' || document.activeElement.matches('select, .skip');
    });
    assert.ok(isVisible, `the focus on ${await focused()} is seen`);
  }
  for (const wanted of ['Log out', 'Sockets', 'Audit', 'New token', 'Delete']) assert.ok(seen.has(wanted), `${wanted} in ${[...seen]}`);
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog[open]');
  await accessible(page, 'a question');
  assert.equal(await focused(), 'Cancel', 'the harmless answer comes first');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.equal(await focused(), 'Delete');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.toast:has-text("The token is deleted")');
  await close();
});

test('the password is asked for again where the login is too old', async (t) => {
  const mock = await started(t);
  let isFresh = false;
  mock.on['POST /v1/tokens'] = () => (isFresh ? [201, { id: idOf(51), token: 'spt_secret', name: 'ci', scopes: [] }] : [403, { status: 403, code: 'login-too-old', detail: 'your login is too old' }]);
  mock.on['POST /session'] = ({ email, password }) => {
    isFresh = email === 'ann@example.com' && password === 'right';
    return isFresh ? [200, { account: mock.account, is_new: false, needs_setup_token: false }] : [401, { status: 401, code: 'wrong-login', detail: 'the password is wrong' }];
  };
  const { page, close } = await open(held, new URL('/tokens', mock.url).href, { expected: [/status of 40[13]/] });
  await page.click('button:has-text("New token")');
  await page.fill('[name=name]', 'ci');
  await page.waitForSelector('code:has-text("sallyport token create --name ci --scope sockets:read --expires-in-days 90")');
  await accessible(page, 'new token');
  await page.click('button:has-text("Create")');
  await page.waitForSelector('dialog [name=password]');
  await accessible(page, 'password again');
  await page.fill('dialog [name=password]', 'wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog [role=alert]');
  await page.fill('dialog [name=password]', 'right');
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog:has-text("spt_secret")');
  assert.equal(mock.asked.filter(({ method, path }) => method === 'POST' && path === '/v1/tokens').length, 2);
  await close();
});

test('changes are in JSON, for the chosen organisation, and meet what they were made from', async (t) => {
  const mock = await started(t);
  const path = `/v1/policies/${idOf(40)}`;
  mock.on[`PATCH ${path}`] = () => [200, mock.data[path]];
  mock.on['POST /v1/policy-test'] = () => [200, { allowed: false, by: 'policy', policy: 'staff', rule: 'left the company', rules: [{ policy: 'staff', rule: 'left the company', unmet: null }] }];
  const { page, close } = await open(held, new URL(`/policies/${idOf(40)}`, mock.url).href);
  await page.selectOption('.organisation', idOf(91));
  await page.click('.section-head button:has-text("Edit")');
  await page.fill('[name=document]', '{"allow": [}');
  await page.click('button:has-text("Save")');
  await page.waitForSelector('[role=alert]:has-text("The rules are not JSON")');
  await page.fill('[name=document]', '{"allow": [{"who": {"anyone": true}}]}');
  await page.click('button:has-text("Save")');
  await page.waitForSelector('.toast:has-text("The policy is saved")');
  const { headers, body } = mock.asked.find(({ method }) => method === 'PATCH');
  assert.equal(headers['content-type'], 'application/json');
  assert.equal(headers['sallyport-organisation'], idOf(91));
  assert.equal(headers['if-match'], `"${path}"`);
  assert.deepEqual(body, { document: { allow: [{ who: { anyone: true } }] } });
  await page.fill('[name=email]', 'bob@example.com');
  await page.click('button:has-text("Test") >> nth=0');
  await page.waitForSelector('.tested:has-text("refused")');
  await accessible(page, 'a tested policy');
  assert.equal(await page.$('nav >> text=Edges'), null, 'edges are for the owner of the installation');
  await close();
});

test('a provider is made with what was filled in, tested and removed', async (t) => {
  const mock = await started(t);
  mock.on['POST /v1/providers'] = () => [201, mock.data['/v1/providers/work']];
  mock.on['POST /v1/providers/work/test'] = () => [200, { works: false, detail: 'the issuer is another one', keys: 2 }];
  mock.on['DELETE /v1/providers/work'] = () => [409, { status: 409, code: 'provider-in-use', detail: 'a socket names the provider' }];
  const { page, close } = await open(held, new URL('/providers/new', mock.url).href, { expected: [/status of 409/] });
  await page.fill('[name=name]', 'work');
  await page.fill('[name=client_id]', 'sallyport');
  await page.fill('[name=client_secret]', 's3cret');
  await page.fill('[name=issuer]', 'https://id.example.com');
  await page.fill('[name=scopes]', 'groups\n\n offline ');
  await page.check('[name=trust_email]');
  await page.waitForSelector(
    'code:has-text("sallyport provider add --kind oidc --client-id sallyport --client-secret-file secret.txt --issuer https://id.example.com --scope groups,offline --trust-email work")',
  );
  assert.ok(!(await page.textContent('form .copied code')).includes('s3cret'), 'no line shows a secret');
  await page.click('button:has-text("Create")');
  await page.waitForSelector('h1:has-text("work")');
  assert.deepEqual(mock.asked.find(({ method }) => method === 'POST').body, {
    name: 'work', kind: 'oidc', client_id: 'sallyport', client_secret: 's3cret', issuer: 'https://id.example.com', scopes: ['groups', 'offline'], trust_email: true,
  });
  await page.click('button:has-text("Test")');
  await page.waitForSelector('dd:has-text("the issuer is another one")');
  await page.click('.place-head button:has-text("Remove")');
  await page.click('dialog button.main');
  await page.waitForSelector('.toast:has-text("A socket names the provider.")');
  assert.equal(await page.textContent('h1'), 'work', 'a refusal leaves everything in place');
  await close();
});

test('a person or an invitation whose message was not sent says why, and one whose message was sent shows no link', async (t) => {
  const mock = await started(t);
  const person = { ...mock.data['/v1/persons'].items[0], email: 'zoe@example.com' };
  const problem = 'the hook answered with status 500';
  mock.on['POST /v1/persons'] = () => [201, { person, sent: false, problem, link: 'https://login.example.test/set/1', expires_at: person.created_at }];
  mock.on[`POST /v1/persons/${person.id}/reset`] = () => [200, { person, sent: true, expires_at: person.created_at }];
  mock.on['POST /v1/invitations'] = () => [201, { ...mock.data['/v1/invitations'].items[0], code: 'spi_code', sent: false, problem }];
  const { page, close } = await open(held, new URL('/providers/local', mock.url).href);
  await page.click('button:has-text("Add a person")');
  await page.fill('[name=email]', 'zoe@example.com');
  await page.click('form button:has-text("Add")');
  await page.waitForSelector('dialog:has-text("No message was sent: the hook answered with status 500. Give the link to zoe@example.com.")');
  assert.equal(await page.textContent('dialog code'), 'https://login.example.test/set/1');
  await accessible(page, 'a link that was not sent');
  await page.click('dialog button:has-text("I have it")');
  await page.click('button:has-text("Reset")');
  await page.click('dialog button.main');
  await page.waitForSelector('dialog:has-text("A message with the link is on its way to zoe@example.com.")');
  assert.equal(await page.$('dialog code'), null);
  await page.click('dialog button:has-text("Close")');
  await page.click('nav >> text=People');
  await page.click('button:has-text("Invite")');
  await page.fill('[name=email]', 'eve@example.com');
  await page.click('form button:has-text("Invite")');
  await page.waitForSelector('dialog:has-text("No message was sent: the hook answered with status 500. Give the code to eve@example.com.")');
  await close();
});

test('a service token shows its secret once, and is for the sockets that were chosen', async (t) => {
  const mock = await started(t);
  mock.on['POST /v1/service-tokens'] = () => [201, { ...mock.data[`/v1/service-tokens/${idOf(70)}`], secret: 'sps_secret' }];
  mock.on['GET /v1/sockets'] = () => [503, { status: 503, detail: 'the store is busy' }];
  const { page, close } = await open(held, new URL('/service-tokens', mock.url).href, { expected: [/status of 503/] });
  await page.click('button:has-text("New service token")');
  await page.waitForSelector('[aria-label="New service token"] [role=alert]:has-text("The store is busy.")');
  assert.equal(await page.$('form'), null, 'the form waits for the sockets');
  delete mock.on['GET /v1/sockets'];
  // Twelve ticks later they are read again.
  for (let ticks = 0; ticks < 12; ticks += 1) await readAgain(page);
  await page.fill('[name=name]', 'ci');
  await page.waitForSelector('code:has-text("sallyport service-token create --socket SOCKET --expires-in-days 90 ci")');
  await page.click('form button:has-text("Create")');
  await page.waitForSelector('form [role=alert]:has-text("Choose the sockets of the token, or all of them.")');
  await page.check('[name=all]');
  await page.waitForSelector('[name=sockets]', { state: 'detached' });
  await page.waitForSelector('code:has-text("sallyport service-token create --expires-in-days 90 ci")');
  await page.click('form button:has-text("Create")');
  await page.click('dialog button:has-text("I have it")');
  await page.click('button:has-text("New service token")');
  await page.fill('[name=name]', 'ci');
  await page.check(`[value="${idOf(1)}"]`);
  await page.check(`[value="${idOf(3)}"]`);
  await page.fill('[name=days]', '');
  await page.waitForSelector('code:has-text("sallyport service-token create --socket shop --socket wiki ci")');
  await accessible(page, 'new service token');
  await page.click('form button:has-text("Create")');
  await page.waitForSelector('dialog:has-text("sps_secret")');
  const [ofAll, ofSome] = mock.asked.filter(({ method }) => method === 'POST').map(({ body }) => body);
  assert.deepEqual(ofAll.sockets, []);
  assert.deepEqual(ofSome, { name: 'ci', sockets: [idOf(1), idOf(3)] });
  await page.click('dialog button:has-text("I have it")');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.ok(!(await page.textContent('#app')).includes('sps_secret'));
  await close();
});

test('an ssh key is added, and certificates get other settings', async (t) => {
  const mock = await started(t);
  mock.on['POST /v1/ssh-keys'] = () => [422, { status: 422, code: 'invalid-request', detail: 'this is a private key: send the public one' }];
  mock.on['PATCH /v1/ssh-authority'] = () => [200, mock.data['/v1/ssh-authority']];
  const { page, close } = await open(held, new URL('/ssh', mock.url).href, { expected: [/status of 422/] });
  await page.click('button:has-text("Add a key")');
  await page.fill('[name=public_key]', 'ssh-ed25519 BBBB\n');
  await page.click('form button:has-text("Add")');
  await page.waitForSelector('[role=alert]:has-text("This is a private key: send the public one.")');
  assert.deepEqual(mock.asked.find(({ method }) => method === 'POST').body, { public_key: 'ssh-ed25519 BBBB' });
  await page.click('[aria-label="Certificates"] button:has-text("Edit")');
  await page.uncheck('[value=permit-pty]');
  await page.fill('[name=force_command]', '/usr/bin/menu');
  await page.waitForSelector('code:has-text("sallyport ssh-ca edit --no-extensions --force-command /usr/bin/menu")');
  await page.click('button:has-text("Save")');
  await until(page, () => !document.querySelector('[name=force_command]'));
  assert.deepEqual(mock.asked.find(({ method }) => method === 'PATCH').body, { extensions: [], force_command: '/usr/bin/menu' });
  await close();
});

test('requests that ended show the newest first, and flows come by pages', async (t) => {
  const mock = await started(t);
  const { page, close } = await open(held, new URL('/flows', mock.url).href);
  const rows = '[aria-label="Ended lately"] tbody tr';
  await page.waitForSelector(`${rows}:nth-child(1):has-text("denied"):has-text("/shop")`);
  await page.waitForSelector(`${rows}:nth-child(2):has-text("200 complete"):has-text("/hello")`);
  await page.waitForSelector('text=The flows of the edge ap-1 are missing');
  mock.data['/v1/flows'].next = 'f9';
  await page.click('button:has-text("Next page")');
  await until(page, () => location.search === '?after=f9');
  await page.waitForSelector('button:has-text("First page")');
  assert.equal(mock.asked.filter(({ path }) => path === '/v1/flows').at(-1).search, '?limit=50&after=f9');
  await close();
});

test('the account ends other logins, accepts an invitation, and leaves an organisation', async (t) => {
  const mock = await started(t);
  mock.on[`DELETE /v1/account/sessions/${idOf(97)}`] = () => [204];
  mock.on['POST /v1/account/invitations/accept'] = () => [422, { status: 422, code: 'invalid-code', detail: 'this code is not valid' }];
  mock.on['POST /v1/organisation/leave'] = () => [204];
  const { page, close } = await open(held, new URL('/account', mock.url).href, { expected: [/status of 422/] });
  await page.click('[aria-label="Logins"] button:text-is("End")');
  await page.waitForSelector('.toast:has-text("The login has ended")');
  await page.click('button:has-text("Accept one")');
  await page.fill('[name=code]', ' wrong ');
  await page.click('form button:has-text("Accept")');
  await page.waitForSelector('[role=alert]:has-text("This code is not valid.")');
  assert.deepEqual(mock.asked.find(({ path }) => path.endsWith('/accept')).body, { code: 'wrong' });
  mock.data['/v1/organisation'] = { id: idOf(91), name: 'Others', role: 'viewer', own: false };
  await page.selectOption('.organisation', idOf(91));
  await page.click('nav >> text=People');
  await page.click('button:has-text("Leave")');
  await page.click('dialog button.main');
  await page.waitForSelector('h1:has-text("Overview")');
  await page.waitForSelector('.numbers');
  const left = mock.asked.find(({ path }) => path === '/v1/organisation/leave');
  assert.equal(left.headers['sallyport-organisation'], idOf(91));
  const next = mock.asked.filter(({ path }) => path === '/v1/sockets').at(-1);
  assert.equal(next.headers['sallyport-organisation'], undefined, 'the desk acts for the own organisation again');
  await close();
});

test('what belongs to the account is asked of its own organisation, whichever is chosen', async (t) => {
  const mock = await started(t);
  mock.on[`DELETE /v1/account/sessions/${idOf(97)}`] = () => [204];
  const { page, close } = await open(held, new URL('/account', mock.url).href);
  await page.selectOption('.organisation', idOf(91));
  await until(page, () => sessionStorage.length === 1);
  await page.click('nav >> text=Overview');
  await page.waitForSelector('.numbers');
  await page.click('nav >> text=Account');
  await page.waitForSelector('text=This is your own account');
  await page.click('[aria-label="Logins"] button:text-is("End")');
  await page.waitForSelector('.toast:has-text("The login has ended")');
  const asked = (wanted) => mock.asked.filter(({ path }) => path.startsWith(wanted)).map(({ headers }) => headers['sallyport-organisation'] ?? 'own');
  assert.equal(asked('/v1/sockets').at(-1), idOf(91));
  assert.deepEqual([...new Set(asked('/v1/account/'))], ['own']);
  assert.ok(asked('/v1/account/').length >= 5, 'each list twice, and the end of a login');
  await close();
});

test('places of the owner of the installation say so to others, and ask for nothing', async (t) => {
  const mock = await started(t);
  const { page, close } = await open(held, new URL('/edges', mock.url).href);
  await page.waitForSelector('td:has-text("eu-1")');
  await page.selectOption('.organisation', idOf(91));
  await page.waitForSelector('text=choose your own organisation at the top');
  await accessible(page, 'a place of the owner');
  await page.selectOption('.organisation', idOf(90));
  await page.waitForSelector('td:has-text("eu-1")');
  mock.account = { ...mock.account, owns_installation: false };
  await page.goto(new URL('/catchment', mock.url).href);
  await page.waitForSelector('text=This is for the owner of the installation.');
  assert.deepEqual(mock.asked.filter(({ path, headers }) => /^.v1.(edges|catchment)/.test(path) && headers['sallyport-organisation']), []);
  assert.equal(mock.asked.find(({ path }) => path.startsWith('/v1/catchment')), undefined);
  await close();
});

test('a place without anything says what leads to something', async (t) => {
  const mock = await started(t);
  for (const [path, list] of Object.entries(mock.data)) if (list.items && path !== '/v1/organisations') mock.data[path] = { ...list, items: [] };
  const { page, close } = await open(held, mock.url);
  await page.waitForSelector('.numbers');
  for (const [path, words] of [
    ['/', 'Create a socket'],
    [`/sockets/${idOf(1)}`, 'sallyport tunnel connect shop 8000'],
    ['/tunnels', 'The page of a socket has the command'],
    ['/edges', 'sallyport edge token create'],
    ['/catchment', 'sallyport catchment measure'],
    ['/tokens', 'A program needs one'],
    ['/domains', 'clients reach a socket by a name of yours'],
    ['/providers/local', 'A person whom you add gets a link'],
  ]) {
    await visit(page, path, PLACES.find(([at]) => at === path)[1]);
    const text = await page.textContent('main');
    assert.ok(text.includes(words), `${path}: ${words}`);
    assert.ok(!text.includes('0 of 0'), path);
    await accessible(page, `${path} without anything`);
    await fits(page, `${path} without anything`);
  }
  await close();
});

test('the choice of the organisation follows what the account joins, sees and loses', async (t) => {
  const mock = await started(t);
  const path = '/v1/organisations';
  const both = mock.data[path];
  const named = (name) => ({ items: [both.items[0], { ...both.items[1], name }] });
  mock.data[path] = { items: [both.items[0]] };
  mock.on['POST /v1/account/invitations/accept'] = () => {
    mock.data[path] = named('Joined');
    return [200, {}];
  };
  const { page, close } = await open(held, new URL('/account', mock.url).href);
  await page.click('button:has-text("Accept one")');
  await page.fill('[name=code]', 'spi_code');
  assert.equal(await page.$('.organisation'), null, 'nothing to choose');
  await page.click('form button:has-text("Accept")');
  await until(page, () => document.querySelector('.organisation')?.textContent.includes('Joined'));
  mock.data[path] = named('Renamed elsewhere');
  await page.focus('.organisation');
  await until(page, () => document.querySelector('.organisation').textContent.includes('Renamed elsewhere'));
  await page.selectOption('.organisation', idOf(91));
  await until(page, () => sessionStorage.length === 1);
  // Somebody removed the account from the organisation that it has chosen.
  mock.data[path] = { items: [both.items[0]] };
  for (let ticks = 0; ticks < 12; ticks += 1) await readAgain(page);
  await page.waitForSelector('.toast:has-text("You do not belong to the chosen organisation any more. This is your own.")');
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await until(page, () => !document.querySelector('.organisation'));
  await page.click('nav >> text=Overview');
  await page.waitForSelector('.numbers');
  assert.equal(mock.asked.filter(({ path: at }) => at === '/v1/sockets').at(-1).headers['sallyport-organisation'], undefined);
  await close();
});

test('an edit of a socket keeps the limits that the form lacks, and weights change in their row', async (t) => {
  const mock = await started(t);
  const path = `/v1/sockets/${idOf(1)}`;
  Object.assign(mock.data[path], { limits: { queue: 7, max_connections: 3 }, domains: ['shop.example.com'], identity: { providers: ['work'], session_minutes: 30, session_idle_minutes: 10 } });
  mock.on[`PATCH ${path}`] = () => [200, mock.data[path]];
  mock.on[`PATCH ${path}/tunnels/${idOf(101)}`] = () => [200, {}];
  const { page, close } = await open(held, new URL(`/sockets/${idOf(1)}`, mock.url).href, { expected: [/status of 403/] });
  await page.click('[aria-label="Settings"] button:has-text("Edit")');
  await page.fill('[name=email_domains]', 'example.com');
  await page.fill('[name=requests_per_second]', '50');
  await page.fill('[name=max_connections]', '');
  await accessible(page, 'settings');
  await page.click('button:has-text("Save")');
  await until(page, () => !document.querySelector('[name=email_domains]'));
  const edit = mock.asked.find(({ method }) => method === 'PATCH');
  assert.equal(edit.headers['if-match'], `"${path}"`);
  assert.deepEqual(edit.body, {
    name: 'shop',
    domains: ['shop.example.com'],
    access: { allow: [], deny: [] },
    limits: { queue: 7, max_connections: 0, requests_per_second: 50, bytes_per_second: 0 },
    identity: { providers: ['work'], session_minutes: 30, session_idle_minutes: 10, email_domains: ['example.com'], email_addresses: [] },
  });
  await page.fill('[aria-label="Weight of home"]', '2000');
  await page.keyboard.press('Tab');
  await page.waitForSelector('td:has([aria-label="Weight of home"]) >> text=A weight is a whole number from 0 to 1000.');
  assert.equal(await page.inputValue('[aria-label="Weight of home"]'), '1', 'the weight that holds');
  await page.fill('[aria-label="Weight of home"]', '20');
  await page.keyboard.press('Tab');
  await page.waitForSelector('.toast:has-text("The weight is changed")');
  const weights = mock.asked.filter(({ method, path: at }) => method === 'PATCH' && at.includes('/tunnels/')).map(({ body }) => body);
  assert.deepEqual(weights, [{ weight: 20 }], 'a number out of bounds is not sent');
  mock.data[`${path}/tunnels`].items[0].weight = 25;
  await readAgain(page);
  await until(page, () => document.querySelector('[aria-label="Weight of home"]').value === '25');
  mock.on[`PATCH ${path}/tunnels/${idOf(101)}`] = () => [403, { status: 403, code: 'missing-role', detail: 'your role may not do that' }];
  await page.fill('[aria-label="Weight of home"]', '30');
  await page.keyboard.press('Tab');
  await page.waitForSelector('td:has([aria-label="Weight of home"]) >> text=Your role may not do that.');
  assert.equal(await page.inputValue('[aria-label="Weight of home"]'), '25', 'the weight that holds');
  await accessible(page, 'a weight that was refused');
  await close();
});

test('the search of the audit log is asked of the server, and stands in the address', async (t) => {
  const mock = await started(t);
  const { page, close } = await open(held, new URL('/audit', mock.url).href);
  await page.selectOption('[name=kind]', 'flow');
  await page.fill('[name=identity]', 'bob@example.com');
  await page.click('button:has-text("Search")');
  await until(page, () => location.search === '?kind=flow&identity=bob%40example.com');
  await until(page, () => document.querySelector('[name=identity]').value === 'bob@example.com');
  await page.click('text=API and command line');
  await page.waitForSelector('code:has-text("sallyport audit --kind flow --identity bob@example.com")');
  const asked = mock.asked.filter(({ path }) => path === '/v1/audit').at(-1);
  assert.equal(asked.search, '?kind=flow&identity=bob%40example.com&limit=50');
  await page.goBack();
  await until(page, () => document.querySelector('[name=identity]').value === '');
  await page.click('button:has-text("Verify")');
  await page.waitForSelector('text=2 events, none changed or missing');
  await close();
});

test('what was typed outlives answers that fail, and the page says that they do', async (t) => {
  const mock = await started(t);
  const path = `/v1/sockets/${idOf(1)}`;
  const { page, close } = await open(held, new URL(`/sockets/${idOf(1)}`, mock.url).href, { expected: [/status of 500/, /ERR_CONNECTION_REFUSED/] });
  await page.click('[aria-label="Settings"] button:has-text("Edit")');
  await page.fill('[name=name]', 'another shop');
  mock.on[`GET ${path}`] = () => [500, { status: 500, detail: 'the store is full' }];
  await readAgain(page);
  await page.waitForSelector('[role=status]:has-text("The store is full. What follows is the answer before.")');
  assert.equal(await page.inputValue('[name=name]'), 'another shop');
  await accessible(page, 'an answer that fails');
  delete mock.on[`GET ${path}`];
  await readAgain(page);
  await page.waitForSelector('text=The store is full.', { state: 'detached' });
  const { port } = new URL(mock.url);
  await mock.stop();
  await readAgain(page);
  await page.waitForSelector('[role=status]:has-text("The server cannot be reached. The page shows what the server said last.")');
  assert.equal(await page.locator('text=The server cannot be reached.').count(), 1, 'one line says so');
  await mock.start(Number(port));
  await readAgain(page);
  await page.waitForSelector('text=The server cannot be reached.', { state: 'detached' });
  assert.equal(await page.inputValue('[name=name]'), 'another shop');
  await close();
});

test('a session that ends in the middle leads to the login, and back to the place', async (t) => {
  const mock = await started(t);
  const { page, close } = await open(held, new URL('/people', mock.url).href, { expected: [/status of 401/] });
  await page.waitForSelector('td:has-text("bob@example.com")');
  const over = () => [401, { status: 401, code: 'not-logged-in', detail: 'log in first' }];
  mock.on['POST /v1/invitations'] = over;
  await page.click('button:has-text("Invite")');
  await page.fill('[name=email]', 'eve@example.com');
  await page.click('.form button:has-text("Invite")');
  await page.waitForSelector('h1:has-text("Sign in")');
  mock.on['POST /session'] = () => [200, { account: mock.account, is_new: false, needs_setup_token: false }];
  await page.fill('[name=email]', 'ann@example.com');
  await page.fill('[name=password]', 'right');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:has-text("People")');
  await close();
});

test('a tab out of view asks for nothing', async (t) => {
  const mock = await started(t);
  const { page, close } = await open(held, mock.url);
  await page.waitForSelector('h1');
  // The page's own clock: a minute passes at once, in view and out of view.
  const hide = (isHidden) =>
    page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { value, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
  await page.clock.install();
  await hide(false);
  const before = mock.asked.length;
  await page.clock.runFor(6_000);
  await until(page, () => true);
  for (let tries = 0; mock.asked.length === before && tries < 600; tries += 1) await page.evaluate(() => new Promise((go) => requestAnimationFrame(go)));
  assert.ok(mock.asked.length > before, 'in view it asks');
  await page.waitForLoadState('networkidle');
  await hide(true);
  const hidden = mock.asked.length;
  await page.clock.runFor(120_000);
  await page.evaluate(() => fetch('/session'));
  assert.deepEqual(mock.asked.slice(hidden).map(({ path }) => path), ['/session'], 'only the request of the test');
  await close();
});
