// A small server that speaks the inspector's API from memory, filled by the tests. It serves dist/ as the program does.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const dist = join(dirname(fileURLToPath(import.meta.url)), '../dist');
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml', txt: 'text/plain; charset=utf-8' };
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']);

const text = (value) => (Buffer.isBuffer(value) ? value : Buffer.from(value ?? ''));

/** Makes a full exchange out of what a test says. */
export function exchange(id, given = {}) {
  const { request = {}, response, ...rest } = given;
  const half = ({ headers = [], body, type, kept, ...more }) => {
    const bytes = text(body);
    const fields = [...(type ? [['content-type', type]] : []), ...headers].map(([name, value]) => ({ name, value }));
    return {
      message: { version: 'HTTP/1.1', headers: fields, bytes: bytes.length, kept: kept ?? bytes.length, is_truncated: kept !== undefined, content_type: type, trailers: [], redacted: [], missed: 0, is_complete: true, ...more },
      body: bytes,
    };
  };
  const sent = half(request);
  const got = response === null ? null : half(response ?? {});
  return {
    summary: {
      began: new Date(Date.UTC(2026, 10, 27, 9, 0, 0) + id * 137).toISOString(),
      method: 'GET',
      host: 'shop.example.test',
      path: '/',
      protocol: 'http',
      state: 'complete',
      status: 200,
      duration_ms: 12.4,
      request_bytes: sent.body.length,
      response_bytes: got?.body.length ?? 0,
      socket_name: 'shop',
      edge: 'eu-1',
      client: '192.0.2.7:41000',
      ...rest,
      id,
    },
    request: sent,
    response: got,
    frames: given.seeded_frames ?? [],
    views: given.views ?? {},
  };
}

/** What a server would say about a body. */
function view({ message, body }) {
  const type = (message.content_type ?? '').split(';')[0];
  const base = { content_type: message.content_type, bytes: body.length, is_truncated: message.is_truncated };
  if (!body.length) return { ...base, kind: 'empty' };
  if (type.endsWith('json')) return { ...base, kind: 'json', text: body.toString() };
  if (type === 'application/x-www-form-urlencoded') return { ...base, kind: 'form', text: body.toString() };
  if (type.startsWith('image/')) return { ...base, kind: 'image' };
  if (type.startsWith('text/') || type.endsWith('xml')) return { ...base, kind: 'text', text: body.toString() };
  return { ...base, kind: 'binary' };
}

export class Mock {
  key = 'k'.repeat(43);
  all = new Map();
  streams = new Set();
  requests = [];
  sockets = new Set();
  state = {
    tunnels: [{ url: 'https://calm-bay-1000.example.test', socket_name: 'calm-bay-1000', target: 'http://127.0.0.1:8080' }],
    edges: [{ name: 'eu-1', is_up: true }, { name: 'us-1', is_up: true }],
    exchanges: 0, bytes: 123_456, max_exchanges: 10_000, max_bytes: 67_108_864, dropped: 0,
  };

  async start(port = 0) {
    this.server = createServer((request, response) => this.answer(request, response).catch((error) => response.destroy(error)));
    this.server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.on('close', () => this.sockets.delete(socket));
    });
    await new Promise((go) => this.server.listen(port, '127.0.0.1', go));
    this.port = this.server.address().port;
    return this;
  }

  get url() {
    return `http://127.0.0.1:${this.port}/`;
  }

  get address() {
    return `${this.url}#key=${this.key}`;
  }

  async stop() {
    if (!this.server.listening) return;
    const closed = new Promise((go) => this.server.close(go));
    for (const socket of this.sockets) socket.destroy();
    this.streams.clear();
    await closed;
  }

  add(given = {}) {
    const id = given.id ?? Math.max(0, ...this.all.keys()) + 1;
    const one = exchange(id, given);
    this.all.set(id, one);
    this.tell('exchange', one.summary);
    return id;
  }

  /** Adds many small ones, without an event for each. */
  fill(count, make) {
    for (let id = 1; id <= count; id += 1) this.all.set(id, exchange(id, make(id)));
  }

  change(id, change) {
    const one = this.all.get(id);
    Object.assign(one.summary, change);
    this.tell('exchange', one.summary);
  }

  frame(id, given) {
    const one = this.all.get(id);
    const number = one.frames.length + 1;
    const frame = { number, at: new Date(Date.UTC(2026, 10, 27, 9, 1, 0) + number * 250).toISOString(), from: 'service', kind: 'text', bytes: text(given.text).length, ...given };
    one.frames.push(frame);
    this.tell('frame', { exchange: id, frame });
  }

  tell(event, data) {
    for (const stream of this.streams) stream.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  async answer(request, response) {
    const url = new URL(request.url, this.url);
    if (!url.pathname.startsWith('/api/')) return this.file(url.pathname, response);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    this.requests.push({ method: request.method, path: url.pathname + url.search, body });
    const send = (status, value, type = 'application/json', more = {}) => {
      response.writeHead(status, { 'content-type': type, 'x-content-type-options': 'nosniff', ...more });
      response.end(typeof value === 'string' || Buffer.isBuffer(value) ? value : JSON.stringify(value));
    };
    if (request.headers.authorization !== `Bearer ${this.key}`) return send(401, { title: 'Unauthorized', detail: 'The key is missing or wrong.' });
    const filter = url.searchParams.get('filter') ?? '';
    if (/^(nonsense|status:abc)/.test(filter)) return send(400, { detail: `"${filter}" is no filter: a status is a number or a class such as 5xx.` });
    const path = url.pathname.slice('/api/'.length).split('/');
    if (path[0] === 'stream') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': hello\n\n');
      this.streams.add(response);
      response.on('close', () => this.streams.delete(response));
      return;
    }
    if (path[0] === 'state') return send(200, { ...this.state, exchanges: this.all.size });
    if (path[0] === 'har') return send(200, { log: { version: '1.2', entries: [] } });
    if (request.method === 'DELETE') {
      this.all.clear();
      this.tell('cleared', {});
      response.writeHead(204).end();
      return;
    }
    if (path.length === 1) return send(200, this.page(url.searchParams, filter));
    const one = this.all.get(Number(path[1]));
    if (!one) return send(404, { detail: `There is no request ${path[1]}.` });
    if (path.length === 2) return send(200, { ...one.summary, request: one.request.message, response: one.response?.message ?? null, timing: one.timing ?? TIMING });
    const half = one[path[2]];
    if (path[3] === 'body') return send(200, half.body, 'application/octet-stream', { 'content-disposition': 'attachment' });
    if (path[3] === 'view') return send(200, one.views[path[2]] ?? view(half));
    if (path[2] === 'frames') return send(200, { items: one.frames.filter(({ number }) => number > Number(url.searchParams.get('after'))) });
    if (path[2] === 'curl') return send(200, `curl -X ${one.summary.method} 'https://shop.example.test${one.summary.path}'`, 'text/plain');
    if (path[2] === 'har') return send(200, { log: { version: '1.2', entries: [] } });
    if (path[2] === 'diff') return send(200, this.diff(one, this.all.get(Number(path[3]))));
    if (path[2] === 'replay') return this.replay(one, JSON.parse(body || '{}'), send);
    return send(404, { detail: 'There is nothing here.' });
  }

  page(query, filter) {
    const before = Number(query.get('before') ?? Infinity);
    const limit = Number(query.get('limit') ?? 100);
    const words = filter.split(/\s+/).filter(Boolean);
    const fits = (one) =>
      words.every((word) => {
        const { status, method, path } = one.summary;
        if (word.startsWith('status:')) return String(status).startsWith(word.slice(7).replace(/x+$/, ''));
        if (word.startsWith('method:')) return method === word.slice(7);
        if (word.startsWith('path:')) return path.includes(word.slice(5));
        return path.includes(word) || one.request.body.includes(word) || !!one.response?.body.includes(word);
      });
    const found = [...this.all.values()].filter((one) => one.summary.id < before && fits(one)).sort((a, b) => b.summary.id - a.summary.id);
    const items = found.slice(0, limit).map(({ summary }) => summary);
    return { items, next: found.length > limit ? items.at(-1).id : null };
  }

  diff(a, b) {
    const section = (title, before, after) => ({
      title,
      lines: [
        ...before.map((line) => ({ op: after.includes(line) ? 'same' : 'removed', text: line })),
        ...after.filter((line) => !before.includes(line)).map((line) => ({ op: 'added', text: line })),
      ],
    });
    const head = (one) => [`${one.summary.method} ${one.summary.path}`, ...one.request.message.headers.map(({ name, value }) => `${name}: ${value}`)];
    const lines = (one) => one.request.body.toString().split('\n');
    return { sections: [section('Request', head(a), head(b)), section('Body of the request', lines(a), lines(b))] };
  }

  replay(one, changes, send) {
    const method = changes.method ?? one.summary.method;
    if (one.request.message.is_truncated && !changes.body_base64) return send(422, { detail: 'The body was cut when it was kept, so it cannot be sent again.' });
    if (!SAFE.has(method) && !changes.confirm) return send(409, { detail: `${method} may act twice at the service.`, needs_confirmation: true });
    const id = this.add({
      ...Object.fromEntries(Object.entries(one.summary).filter(([name]) => name !== 'id')),
      id: undefined,
      method,
      path: changes.path ?? one.summary.path,
      replay_of: one.summary.id,
      request: {
        type: one.request.message.content_type,
        headers: (changes.headers ?? one.request.message.headers).map(({ name, value }) => [name, value]).filter(([name]) => name !== 'content-type').concat([['x-sallyport-replay', String(one.summary.id)]]),
        body: changes.body_base64 === undefined ? one.request.body : Buffer.from(changes.body_base64, 'base64'),
      },
      response: { type: 'application/json', body: '{"ok":true}' },
    });
    return send(201, { id });
  }

  async file(path, response) {
    const name = path === '/' ? 'index.html' : path.slice(1);
    if (!/^[a-z]+\.[a-z]+$/.test(name)) return response.writeHead(404).end();
    try {
      const bytes = await readFile(join(dist, name));
      response.writeHead(200, { 'content-type': TYPES[name.split('.')[1]], 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' });
      response.end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  }
}

const TIMING = [
  { name: 'Request received', at_ms: 0.4 },
  { name: 'Service connected', at_ms: 1.1 },
  { name: 'First byte', at_ms: 9.8 },
  { name: 'Last byte', at_ms: 12.4 },
];
