// Requests as services make them, and requests as attackers make them.
import { crc32, deflateSync } from 'node:zlib';

const PAYMENT = {
  id: 'evt_1QabcD2eZvKYlo2C', object: 'event', api_version: '2026-08-27', created: 1795770000, livemode: false,
  type: 'invoice.payment_failed',
  data: {
    object: {
      id: 'in_1QabcB2eZvKYlo2C', object: 'invoice', amount_due: 129900, amount_remaining: 129900, attempt_count: 2, currency: 'eur',
      customer: 'cus_R1abcdEFGH', customer_email: 'alice@example.test', lines: { object: 'list', data: [{ id: 'il_1', amount: 99900, description: 'Team plan' }, { id: 'il_2', amount: 30000, description: 'Support' }], has_more: false },
      metadata: {}, number: 'F-2026-00421', paid: false, total_digits: 12345678901234567890n,
    },
  },
  pending_webhooks: 1,
};
export const WEBHOOK = JSON.stringify(PAYMENT, (_, value) => (typeof value === 'bigint' ? 1234567890 : value)).replace('1234567890}', '12345678901234567890}');

/** A gradient of 96 by 48 points. */
function png() {
  const [width, height] = [96, 48];
  const rows = Buffer.alloc(height * (1 + width * 3));
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) rows.set([120 + x, 60 + y * 2, 40 + x], y * (1 + width * 3) + 1 + x * 3);
  }
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const out = Buffer.alloc(body.length + 8);
    out.writeUInt32BE(data.length, 0);
    body.copy(out, 4);
    out.writeUInt32BE(crc32(body), body.length + 4);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const sign = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([sign, chunk('IHDR', head), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}
export const PNG = png();

const JSON_TYPE = 'application/json';
const agent = ['user-agent', 'Stripe/1.0 (+https://stripe.com/docs/webhooks)'];

export function services(mock) {
  const paths = ['/', '/assets/app.3f2a.js', '/assets/app.css', '/api/cart', '/api/session', '/products?page=2&sort=price', '/healthz', '/favicon.ico'];
  for (let at = 0; at < 30; at += 1) {
    mock.add({
      path: paths[at % paths.length],
      status: at % 11 === 4 ? 404 : at % 7 === 3 ? 304 : 200,
      duration_ms: 1.7 + ((at * 37) % 90),
      edge: at % 3 ? 'eu-1' : 'us-1',
      identity: at % 4 === 1 ? 'alice@example.test' : null,
      request: { headers: [['accept', '*/*'], ['user-agent', 'Mozilla/5.0 (X11; Linux x86_64)'], ['cookie', '[redacted]']] },
      response: { type: 'text/html; charset=utf-8', body: '<!doctype html>\n<title>Shop</title>\n<p>Hello</p>\n' },
    });
  }
  const ids = {};
  ids.image = mock.add({ path: '/img/logo.png', response: { type: 'image/png', body: PNG } });
  ids.form = mock.add({
    method: 'POST', path: '/login', status: 303, identity: 'bob@example.test', rule: 'staff',
    request: { type: 'application/x-www-form-urlencoded', body: 'name=bob&password=%5Bredacted%5D&next=%2Fcart%3Fa%3D1' }, response: { headers: [['location', '/cart']] },
  });
  ids.multipart = mock.add({
    method: 'POST', path: '/upload', status: 201, duration_ms: 1420,
    request: { type: 'multipart/form-data; boundary=x', body: '--x\r\n...\r\n--x--' },
    views: {
      request: {
        kind: 'multipart', content_type: 'multipart/form-data', bytes: 240, is_truncated: false,
        parts: [
          { name: 'title', bytes: 11, text: 'Summer sale', content_type: 'text/plain' },
          { name: 'file', file_name: 'prices.csv', content_type: 'text/csv', bytes: 24, text: 'sku,price\nA1,12\nB2,30\n' },
        ],
      },
    },
    response: { type: JSON_TYPE, body: '{"id": 7}' },
  });
  ids.xml = mock.add({ path: '/feed.xml', response: { type: 'application/xml', body: '<feed><entry id="1"><title>First &amp; last</title><link href="x"/></entry></feed>' } });
  ids.broken = mock.add({ path: '/api/broken', status: 502, response: { type: JSON_TYPE, body: '{"error": "no upstream",\n "retry": tru}' } });
  ids.failed = mock.add({ path: '/api/slow', status: null, state: 'failed', duration_ms: 30000, error: 'The service at 127.0.0.1:8080 did not answer in 30 s.', response: null });
  ids.denied = mock.add({ path: '/admin', status: 403, state: 'denied', identity: 'mallory@example.test', rule: 'admins only', error: 'The rule "admins only" denied it.', response: null });
  ids.cut = mock.add({
    method: 'PUT', path: '/backup.tar', status: 200, duration_ms: 63_500,
    request: { type: 'application/octet-stream', body: Buffer.from(Array.from({ length: 4000 }, (_, at) => (at * 31) % 256)), kept: 4000, bytes: 2_147_483_648 },
  });
  ids.large = mock.add({
    path: '/api/orders?limit=500', duration_ms: 214,
    response: { type: JSON_TYPE, headers: [['content-encoding', 'gzip']], content_encoding: 'gzip', body: JSON.stringify({ orders: Array.from({ length: 500 }, (_, at) => ({ id: at, total: at * 3.5, items: ['a', 'b'], paid: at % 2 === 0, note: null })) }) },
  });
  ids.socket = mock.add({ path: '/live', status: 101, state: 'open', duration_ms: null, protocol: 'websocket', frames: 3 });
  for (let at = 0; at < 40; at += 1) {
    const one = mock.all.get(ids.socket);
    one.frames.push({
      number: at + 1, at: new Date(Date.UTC(2026, 10, 27, 9, 1, 0) + at * 700).toISOString(), from: at % 3 ? 'service' : 'client', kind: at % 9 === 8 ? 'binary' : 'text', bytes: 42 + at,
      ...(at % 9 === 8 ? { base64: Buffer.from(`\u0000\u0001price ${at}`).toString('base64') } : { text: JSON.stringify({ type: at % 3 ? 'price' : 'subscribe', sku: `A${at}`, value: at * 1.25 }) }),
    });
  }
  ids.events = mock.add({ path: '/events', state: 'open', duration_ms: null, protocol: 'sse', response: { type: 'text/event-stream' } });
  mock.frame(ids.events, { kind: 'tick', text: 'one' });
  ids.webhook = mock.add({
    method: 'POST', path: '/webhooks/stripe?source=live', status: 500, duration_ms: 48.2,
    request: {
      type: JSON_TYPE, body: WEBHOOK,
      headers: [agent, ['stripe-signature', 't=1795770000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd'], ['accept', '*/*'], ['x-forwarded-for', '192.0.2.7'], ['authorization', '[redacted]']],
      redacted: ['authorization'],
    },
    response: { type: JSON_TYPE, body: '{"error":"KeyError: \'total\'","trace":["app.py:41 handle","app.py:17 total"]}', headers: [['server', 'gunicorn']] },
  });
  return ids;
}

export const SCRIPT = '<script>window.hit=1</script>';
export const IMAGE = '<img src=x onerror=window.hit=1>';

/** Content that must stay text wherever it is shown. */
export function hostile(mock) {
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1"><script>window.hit=1</script><image href="http://127.0.0.1:1/out"/></svg>';
  const turned = '\u202egnp.exe\u0007\u001b[31m';
  const ids = [];
  const add = (given) => ids.push(mock.add(given));
  add({ method: 'POST', path: `/${SCRIPT}?q=${IMAGE}&u=javascript:window.hit=1`, identity: `${IMAGE}@x`, rule: IMAGE, edge: IMAGE, client: IMAGE, host: IMAGE, socket_name: IMAGE, error: IMAGE, state: 'failed', request: { type: 'text/html', body: SCRIPT + IMAGE, headers: [[IMAGE, SCRIPT], ['x', turned], ['link', 'javascript:window.hit=1']] } });
  add({ method: SCRIPT, path: '/json', request: { type: JSON_TYPE, body: JSON.stringify({ [IMAGE]: SCRIPT, __proto__x: 1, deep: [IMAGE] }).replace('__proto__x', '__proto__') }, response: { type: JSON_TYPE, body: `{"a": ${IMAGE}}` } });
  add({ path: '/svg', response: { type: 'image/svg+xml', body: svg } });
  add({ path: '/html-as-image', response: { type: 'image/png', body: SCRIPT } });
  add({ path: '/odd-image', response: { type: `image/${IMAGE}`, body: SCRIPT } });
  add({ path: '/xml', response: { type: 'text/xml', body: `<a b="${'<'.repeat(20)}"><!-- ${SCRIPT} ` } });
  add({ path: '/multipart', request: { type: 'multipart/form-data', body: 'x' }, views: { request: { kind: 'multipart', bytes: 1, is_truncated: false, problem: IMAGE, parts: [{ name: IMAGE, file_name: `../../${SCRIPT}${turned}`, content_type: IMAGE, bytes: 3, text: SCRIPT }] } } });
  add({ path: '/form', request: { type: 'application/x-www-form-urlencoded', body: `${encodeURIComponent(IMAGE)}=${encodeURIComponent(SCRIPT)}` } });
  add({ path: '/many-fields', request: { type: 'application/x-www-form-urlencoded', body: `${IMAGE}=1&`.repeat(5000) } });
  add({ path: '/wide', response: { type: JSON_TYPE, body: `[${'0,'.repeat(200_000)}0]` } });
  add({ path: '/nested', response: { type: JSON_TYPE, body: '['.repeat(50_000) } });
  add({ path: '/invalid', response: { type: 'text/plain', body: Buffer.from([0xff, 0xfe, 0x00, 0x1b, 0x5b, 0x32, 0x4a]) } });
  add({ path: '/headers', request: { headers: Array.from({ length: 10_000 }, (_, at) => [`x-${at}`, IMAGE]) } });
  add({ path: `/${'long/'.repeat(2000)}` });
  const socket = mock.add({ path: `/socket${IMAGE}`, protocol: 'websocket', status: 101, state: 'open', duration_ms: null });
  mock.frame(socket, { text: SCRIPT + IMAGE, kind: IMAGE });
  mock.frame(socket, { text: `{"a":"${'<b>'.repeat(10)}"}` });
  ids.push(socket);
  return ids;
}
