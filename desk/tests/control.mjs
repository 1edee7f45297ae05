// A small server that speaks control's API from memory, filled by the tests. It serves the desk as control does.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { POLICY } from './mock.mjs';

const dist = join(dirname(fileURLToPath(import.meta.url)), '../dist');
const FILES = { '/desk.js': 'text/javascript; charset=utf-8', '/desk.css': 'text/css; charset=utf-8', '/mark.svg': 'image/svg+xml' };
const AT = '2026-11-27T09:00:00Z';
const id = (n) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;

/** What a text of others may try. */
export const HOSTILE = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\u202egnp';

const socket = (n, name, given = {}) => ({
  id: id(n), name, dns_name: `calm-bay-${1000 + n}.example.test`, url: `https://calm-bay-${1000 + n}.example.test`, type: 'http', origin_protocol: 'auto',
  created_at: AT, tunnels_total: 1, tunnels_up: 1, origins_failing: 0, access: { allow: [], deny: [] }, limits: {}, policies: [], domains: [], notes: [], ...given,
});
const tunnel = (n, of, given = {}) => ({ id: id(100 + n), socket_id: id(of), created_at: AT, status: 'up', edge: 'eu-1', region: 'eu', weight: 1, name: 'home', host: 'nas', agent: 'sallyport/0.1', since: AT, holders: [], labels: {}, path: '/', ...given });
const provider = (name, given = {}) => ({ id: id(65), name, kind: 'oidc', client_id: 'sallyport', issuer: 'https://id.example.com', has_secret: true, scopes: ['openid'], trust_email: false, check_minutes: 5, require_totp: false, redirect_uri: 'https://login.example.test/callback/work', backchannel_logout_uri: '', post_logout_redirect_uri: '', created_at: AT, ...given });
const ended = (of, given = {}) => ({ id: of, socket: id(1), socket_name: 'calm-bay-1001', transport: 'http', ended: AT, duration_ms: 12.5, bytes_in: 300, bytes_out: 1200, verdict: 'complete', method: 'GET', client: '192.0.2.7:41000', ...given });
/** The counters of a socket to which nobody has come. */
export const stats = (n) => ({ socket: id(n), socket_name: `calm-bay-${1000 + n}`, transport: 'http', requests: {}, flows: {}, refusals: {}, bytes_in: 0, bytes_out: 0, live: 0, per_second: 0, edges: [], origins: [] });
const page = (items, next = null) => ({ items, next });

/** The data of an installation in use. */
export function filled(name = 'shop') {
  const admin = { actor: 'ann@example.com', action: 'socket.create', outcome: 'done', request_id: 'r1', changed: [], target: name };
  const flow = { id: 'f1', socket: id(1), socket_name: 'calm-bay-1001', transport: 'http', client: '192.0.2.7:41000', identity: 'bob@example.com', began: AT, ended: AT, bytes_in: 300, bytes_out: 1200, verdict: 'denied', rule: 'left the company', method: 'GET', path: '/admin' };
  const policy = { id: id(40), name: 'staff', document: { allow: [{ name, who: { email_domains: ['example.com'] } }], deny: [{ name: 'left the company', who: { emails: ['bob@example.com'] } }] }, everywhere: false, sockets: [id(1)], labels: {}, created_at: AT, updated_at: AT };
  const record = { name: '_sallyport.app.example.com', type: 'TXT', value: 'proof-1', purpose: 'proves the domain', found: false };
  const domain = { id: id(60), name: 'app.example.com', state: 'pending', records: [record], asked: 'dns', created_at: AT, checked_at: AT, problem: name };
  const edges = [
    { id: id(20), name: 'eu-1', region: 'eu', state: 'up', created_at: AT, tunnels: 4, flows: 12, connections: 30, addresses: ['192.0.2.1:443'], version: '0.1.0', memory_bytes: 50_000_000, round_trip_ms: 1.4, heard_at: AT },
    { id: id(21), name: 'us-1', region: 'us', state: 'draining', created_at: AT, tunnels: 0, flows: 1, drain_until: AT, addresses: [] },
    { id: id(22), name: 'ap-1', region: 'ap', state: 'down', created_at: AT, tunnels: 0 },
  ];
  const service = { id: id(70), name, sockets: [id(1)], scope: { paths: ['/api'] }, created_at: AT, email: 'ci@example.com' };
  return {
    '/v1/organisations': page([{ id: id(90), name: 'Ann', role: 'owner', own: true }, { id: id(91), name, role: 'viewer', own: false }]),
    '/v1/sockets': page([socket(1, name), socket(2, 'api', { tunnels_up: 0 }), socket(3, 'wiki', { failure: { code: 'refused', message: `the origin refuses connections: ${name}`, since: AT } })]),
    [`/v1/sockets/${id(1)}`]: socket(1, name, { policies: ['staff'], notes: [name] }),
    [`/v1/sockets/${id(1)}/tunnels`]: page([tunnel(1, 1), tunnel(2, 1, { status: 'down', name, agent: name })]),
    [`/v1/sockets/${id(2)}/tunnels`]: page([tunnel(3, 2, { status: 'down' })]),
    [`/v1/sockets/${id(3)}/tunnels`]: page([tunnel(4, 3, { failure: { code: 'refused', message: 'connection refused', since: AT } })]),
    [`/v1/sockets/${id(1)}/origins`]: page([{ id: id(70), socket_id: id(1), address: '10.0.0.7:9000', weight: 1, healthy: true, path: '/', created_at: AT }]),
    [`/v1/sockets/${id(2)}/stats`]: stats(2),
    [`/v1/sockets/${id(1)}/stats`]: { socket: id(1), socket_name: 'calm-bay-1001', transport: 'http', requests: { '2xx': 1200, '5xx': 3 }, flows: {}, refusals: { denied: 4 }, bytes_in: 12_000, bytes_out: 4_000_000, live: 1, per_second: 0.4, first_byte: { p50_ms: 3, p99_ms: 40 }, edges: [], origins: [] },
    '/v1/flows': { ...page([{ id: 'f9', socket: id(1), socket_name: 'calm-bay-1001', transport: 'http', client: '192.0.2.7:41000', identity: name, began: AT, bytes: 5000 }]), silent: [{ edge: 'ap-1', why: 'it does not answer' }] },
    '/v1/flows/log': { items: [ended('f1', { status: 200, path: '/hello' }), ended('f2', { verdict: 'denied', rule: name, identity: 'bob@example.com', path: `/${name}` })], next: '2', silent: [{ edge: 'ap-1', why: name }] },
    '/v1/organisation': { id: id(90), name: 'Ann', role: 'owner', own: true },
    '/v1/account/sessions': page([{ id: id(96), current: true, client: 'desk', address: '192.0.2.7', created_at: AT, expires_at: AT }, { id: id(97), current: false, client: name, created_at: AT, expires_at: AT }]),
    '/v1/account/invitations': page([{ id: id(98), organisation: id(91), organisation_name: name, role: 'viewer', created_at: AT, expires_at: AT }]),
    '/v1/edges': page(edges),
    '/v1/edges/ways': page([{ from: 'eu-1', to: 'us-1', kind: 'edge', by: 'mesh', sent: 20, lost: 1, recent: 20, recent_lost: 1, min_ms: 78.2, median_ms: 79.9 }, { from: 'eu-1', to: name, kind: 'host', by: 'ping', sent: 5, lost: 5, recent: 5, recent_lost: 5, failure: name }]),
    '/v1/anycast/status': { edges: [{ edge: 'eu-1', problems: [name], prefixes: [{ prefix: '192.0.2.0/24', state: 'announced', why: 'the edge serves', since: AT, addresses: [], sent_to: ['r1'] }], peers: [{ name: 'r1', is_up: true, state: 'Established' }] }], orders: [] },
    '/v1/balancers': page([{ site: 'eu', addresses: ['198.51.100.1'], balancers: [], encapsulation: 'gue', services: [], edges: [{ id: id(20), name: 'eu-1', server: 1, weight: 100, state: 'serving' }], created_at: AT }]),
    '/v1/providers': page([provider('work'), provider('local', { kind: 'local', client_id: '', issuer: null, has_secret: false })]),
    '/v1/providers/work': provider('work', { groups_claim: name }),
    '/v1/providers/local': provider('local', { kind: 'local', client_id: '', issuer: null, has_secret: false }),
    '/v1/persons': page([{ id: id(95), email: 'eve@example.com', name, groups: [name], state: 'active', created_at: AT, recovery_codes: 0, totp: false }]),
    '/v1/service-tokens': page([service]),
    [`/v1/service-tokens/${id(70)}`]: service,
    '/v1/ssh-keys': page([{ id: id(75), name, fingerprint: 'SHA256:abc', public_key: 'ssh-ed25519 AAAA', created_at: AT }]),
    '/v1/ssh-authority': { public_key: `ssh-ed25519 AAAA ${name}`, extensions: ['permit-pty'], mysocket_principal: false },
    '/v1/catchment': { items: [{ prefix: '192.0.2.0/24', as: 64500, country: 'GB', site: 'us', networks: 1, requests: 18204, mean_ms: 84, better: 'eu', better_ms: 9, lost_ms: 1_365_300, last_seen: AT }], networks: 1, has_more: false, frozen: name },
    '/v1/catchment/suggestion': { change: { action: name, group: 'AS64500', from: 'us', to: 'eu', networks: 12, unmeasured: 3, requests: 100, before_ms: 84, after_ms: 9, gain_ms: 7500 } },
    '/v1/catchment/measurements': page([{ id: id(77), address: '198.51.100.1', from: 'eu-1', started_at: AT, state: 'done', targets: 400, landed: 380, opted_out: 1, split: 0, edges: [] }]),
    [`/v1/sockets/${id(1)}/plan`]: {
      socket_id: id(1), is_preview: false, words: [`eu sends all to ${name}`],
      origins: [{ origin: id(101), name, region: 'eu', is_learned: true, planned_rps: 40, rps: 38.2, max_rps: 120, open: 3, latency_ms: 12.5 }],
      edges: [{ edge: 'eu-1', region: 'eu', is_heard: true, rps: 40, refused_rps: 0, shares: [{ origin: id(101), planned_rps: 40, rps: 38.2 }] }],
    },
    '/v1/policies': page([policy]),
    [`/v1/policies/${id(40)}`]: policy,
    '/v1/members': page([{ id: id(90), name: 'Ann', email: 'ann@example.com', role: 'owner', founder: true, since: AT }, { id: id(92), name, email: 'bob@example.com', role: 'viewer', founder: false, since: AT }]),
    '/v1/invitations': page([{ id: id(80), email: 'eve@example.com', role: 'member', invited_by: 'ann@example.com', created_at: AT, expires_at: AT }]),
    '/v1/tokens': page([{ id: id(50), organisation: id(90), name, scopes: ['sockets:read'], created_at: AT }]),
    '/v1/domains': page([domain]),
    '/v1/domains/app.example.com': domain,
    '/v1/certificates': page([
      { id: id(61), names: ['example.test'], state: 'valid', source: 'acme', is_of_installation: true, created_at: AT, not_after: '2099-01-01T00:00:00Z', issuer: 'CA' },
      { id: id(62), names: ['old.example.test'], state: 'valid', source: 'acme', is_of_installation: true, created_at: AT, not_after: '2020-01-01T00:00:00Z', problem: name },
    ]),
    '/v1/audit': page([{ seq: 2, at: AT, kind: 'flow', prev: '', hash: '', flow }, { seq: 1, at: AT, kind: 'admin', prev: '', hash: '', admin }]),
    '/v1/audit/verify': { is_good: true, events: 2, first: 1, last: 2, hash: '', gaps: 0, problems: [] },
  };
}

export class ControlMock {
  account = { id: id(90), name: 'Ann', email: 'ann@example.com', owns_installation: true, ends_at: '2099-01-01T00:00:00Z' };
  isNew = false;
  data = filled();
  /** What was asked, in order. */
  asked = [];
  /** Answers of a test to what would change something: by method and path. */
  on = {};
  sockets = new Set();

  async start(port = 0) {
    this.server = createServer((request, response) => this.answer(request, response).catch((error) => response.destroy(error)));
    this.server.on('connection', (one) => {
      this.sockets.add(one);
      one.on('close', () => this.sockets.delete(one));
    });
    await new Promise((go) => this.server.listen(port, '127.0.0.1', go));
    this.url = `http://127.0.0.1:${this.server.address().port}/`;
    return this;
  }

  async stop() {
    const closed = new Promise((go) => this.server.close(go));
    for (const one of this.sockets) one.destroy();
    await closed;
  }

  async answer(request, response) {
    const { pathname, search } = new URL(request.url, this.url);
    const json = (status, value) => {
      response.writeHead(status, { 'content-type': status < 400 ? 'application/json' : 'application/problem+json', etag: `"${pathname}"` });
      response.end(value === undefined ? '' : JSON.stringify(value));
    };
    if (!pathname.startsWith('/v1/') && pathname !== '/session') {
      const type = FILES[pathname];
      response.writeHead(200, { 'content-type': type ?? 'text/html; charset=utf-8', 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' });
      return response.end(await readFile(join(dist, type ? pathname : 'desk.html')));
    }
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const body = text ? JSON.parse(text) : undefined;
    this.asked.push({ method: request.method, path: pathname, search, body, headers: request.headers });
    const own = this.on[`${request.method} ${pathname}`];
    if (own) return json(...own(body));
    if (pathname === '/session') return json(200, { account: this.account, is_new: this.isNew, needs_setup_token: false });
    const found = request.method === 'GET' && this.data[pathname];
    return found ? json(200, found) : json(404, { status: 404, title: 'Not Found', detail: `there is nothing at ${pathname}`, code: 'not-found' });
  }
}

export const idOf = id;
