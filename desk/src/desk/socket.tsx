// One socket: its facts, settings, tunnels, origins, policies and open flows.
import { useState } from 'preact/hooks';
import { count, plain, size } from '../parts/format';
import { command } from '../parts/shell';
import { ask, tagOf, useApi } from './api';
import { EndedFlows, FlowTable } from './flows';
import { Await, Check, Copied, doing, Facts, Field, Form, Lamp, listOf, Once, Place, Risky, Section, Table, Time, Ways, Weight } from './parts';
import { A, go, to } from './router';
import { SocketState } from './sockets';
import { TunnelName, TunnelState } from './tunnels';
import type { CreatedTunnel, DirectOrigin, FlowPage, Page, Policy, Socket, SocketIdentity, SocketStats, Tunnel, UpdateSocket } from './wire';
import { curl } from './ways';

interface Shown {
  socket: Socket;
  path: string;
  /** Reads everything again. */
  onChange: () => void;
}

export function OneSocket({ id }: { id: string }) {
  const path = to('v1', 'sockets', id);
  const [revision, setRevision] = useState(0);
  const loaded = useApi<Socket>(path, revision);
  const onChange = () => setRevision((old) => old + 1);
  return (
    <Await of={loaded}>
      {(socket) => (
        <Place
          title={socket.name}
          actions={
            <>
              <A to={to('sockets', id, 'plan')}>Plan</A>
              <Risky
                label="Delete"
                title={`Delete ${socket.name}?`}
                sentence="The socket and its tunnels end at once. No other organisation ever gets its public name."
                onDo={async () => doing(ask('DELETE', path), 'The socket is deleted', () => go('/sockets'))}
              />
            </>
          }
        >
          <SocketFacts socket={socket} />
          <Settings socket={socket} path={path} onChange={onChange} />
          <SocketTunnels socket={socket} path={path} onChange={onChange} revision={revision} />
          <Origins path={path} revision={revision} onChange={onChange} />
          <Attached socket={socket} revision={revision} onChange={onChange} />
          <Traffic path={path} socket={socket} />
          <Ways
            of={[
              [curl('GET', path), command('sallyport socket show', ['', socket.name])],
              [curl('GET', `${path}/stats`), command('sallyport socket stats', ['', socket.name])],
              [curl('DELETE', path), command('sallyport socket delete', ['', socket.name])],
            ]}
          />
        </Place>
      )}
    </Await>
  );
}

function SocketFacts({ socket }: { socket: Socket }) {
  const isWeb = /^https?:/.test(socket.url);
  return (
    <Facts
      of={[
        ['Address', isWeb ? <a href={socket.url} target="_blank" rel="noreferrer">{plain(socket.url)}</a> : plain(socket.url)],
        ['State', <SocketState of={socket} />],
        ['Type', socket.type],
        ['Domains', socket.domains?.length ? <Links of={socket.domains} at="domains" /> : ''],
        ['Login', socket.identity ? <Admitted of={socket.identity} /> : socket.protected ? 'user name and password' : ''],
        ['Created', <Time at={socket.created_at} />],
        ['Note', (socket.notes ?? []).map(plain).join(' ')],
      ]}
    />
  );
}

/** Names of things, each of which has a place. */
const Links = ({ of, at }: { of: string[]; at: string }) => (
  <>
    {of.map((name, index) => (
      <span key={name}>
        {index > 0 && ', '}
        <A to={to(at, name)}>{plain(name)}</A>
      </span>
    ))}
  </>
);

/** Who is admitted after a login. */
function Admitted({ of: { providers, email_domains, email_addresses } }: { of: SocketIdentity }) {
  const who = [...(email_domains ?? []), ...(email_addresses ?? [])].map(plain).join(', ') || 'everybody with a login';
  return (
    <>
      required: {who}, by {providers?.length ? <Links of={providers} at="providers" /> : 'any provider'}
    </>
  );
}

const NUMBERS = ['max_connections', 'requests_per_second', 'bytes_per_second'] as const;

type Values = Record<string, string>;

/** The settings that a form holds, as the API takes them. Limits that the form does not show stay. */
function settingsOf(socket: Socket, values: Values): Omit<UpdateSocket, 'identity' | 'force'> & { identity: Partial<SocketIdentity> | null; force?: true } {
  const { limits, identity } = socket;
  return {
    name: values.name ?? socket.name,
    domains: listOf(values.domains),
    access: { allow: listOf(values.allow), deny: listOf(values.deny) },
    limits: { ...limits, ...Object.fromEntries(NUMBERS.map((name) => [name, Number(values[name] || 0)])) },
    identity: values.login
      ? { ...identity, email_domains: listOf(values.email_domains), email_addresses: listOf(values.email_addresses), providers: listOf(values.providers) }
      : null,
    ...(values.open ? { force: true as const } : {}),
  };
}

const lineOf = (socket: Socket, { name, allow, deny, domains, login, open, email_domains, email_addresses, providers }: Values): string =>
  command(
    'sallyport socket edit',
    ['--name', name === socket.name ? '' : name],
    ['--allow', listOf(allow).join(',')],
    ['--deny', listOf(deny).join(',')],
    ...listOf(domains).map((one): [string, string] => ['--domain', one]),
    ...(login ? ['--cloudauth'] : socket.identity ? ['--no-cloudauth', ...(open ? ['--force'] : [])] : []),
    ['--allowed-email-domains', login && listOf(email_domains).join(',')],
    ['--allowed-email-addresses', login && listOf(email_addresses).join(',')],
    ...(login ? listOf(providers).map((one): [string, string] => ['--identity-provider', one]) : []),
    ['', socket.name],
  );

function Settings({ socket, path, onChange }: Shown) {
  const [tag, setTag] = useState<string | null>(null);
  const [isOpen, setOpen] = useState(false);
  const open = () => {
    setTag(tagOf(path));
    setOpen(true);
  };
  const { allow = [], deny = [] } = socket.access ?? {};
  const limits = socket.limits ?? {};
  return (
    <Section title="Settings" actions={!isOpen && <button type="button" onClick={open}>Edit</button>}>
      {!isOpen ? (
        <Facts
          of={[
            ['Allowed', allow.map(plain).join(', ') || 'all clients'],
            ['Denied', deny.map(plain).join(', ') || 'none'],
            ['Limits', NUMBERS.flatMap((name) => (limits[name] ? [`${name.replaceAll('_', ' ')} ${count(limits[name])}`] : [])).join(', ') || 'none'],
          ]}
        />
      ) : (
        <Form
          button="Save"
          onCancel={() => setOpen(false)}
          line={(values) => lineOf(socket, values)}
          onSend={async (values) => {
            await ask('PATCH', path, settingsOf(socket, values), { tag });
            setOpen(false);
            onChange();
          }}
        >
          <SettingFields socket={socket} />
        </Form>
      )}
    </Section>
  );
}

function SettingFields({ socket: { name, domains = [], access, limits, identity } }: { socket: Socket }) {
  const number = (of: (typeof NUMBERS)[number]) => (limits?.[of] ? String(limits[of]) : '');
  return (
    <>
      <Field label="Name" name="name" value={name} isNeeded />
      <Field label="Domains" name="domains" lines={2} value={domains.join('\n')} hint="Verified domains of yours, one in each line." />
      <Field label="Clients that are allowed" name="allow" lines={3} value={(access?.allow ?? []).join('\n')} hint="A network, country:CH or asn:64500 in each line. Empty: all clients." />
      <Field label="Clients that are denied" name="deny" lines={3} value={(access?.deny ?? []).join('\n')} />
      <fieldset class="checks">
        <legend>Login</legend>
        <Check name="login" label="Clients must log in" isOn={Boolean(identity)} />
        <Check name="open" label="Open to all, if nothing else limits" />
      </fieldset>
      <Field label="Domains of e-mail addresses" name="email_domains" lines={2} value={(identity?.email_domains ?? []).join('\n')} hint="With a login: those who come in. One in each line." />
      <Field label="E-mail addresses" name="email_addresses" lines={2} value={(identity?.email_addresses ?? []).join('\n')} />
      <Field label="Providers" name="providers" lines={2} value={(identity?.providers ?? []).join('\n')} hint="Empty: any provider of the organisation." />
      <Field label="Most connections" name="max_connections" type="number" value={number('max_connections')} hint="Empty: no limit." />
      <Field label="Requests a second" name="requests_per_second" type="number" value={number('requests_per_second')} />
      <Field label="Bytes a second" name="bytes_per_second" type="number" value={number('bytes_per_second')} />
    </>
  );
}

function SocketTunnels({ socket, path, onChange, revision }: Shown & { revision: number }) {
  const loaded = useApi<Page<Tunnel>>(`${path}/tunnels?limit=100`, revision);
  const [made, setMade] = useState<CreatedTunnel | null>(null);
  const create = () =>
    doing(
      ask<CreatedTunnel>('POST', `${path}/tunnels`, {}).then((tunnel) => setMade(tunnel)),
      'The tunnel is made',
      onChange,
    );
  return (
    <Section title="Tunnels" actions={<button type="button" onClick={create}>New tunnel</button>}>
      {made && (
        <Once
          title="The credential of the tunnel"
          secret={made.credential}
          sentence="A connector holds the tunnel with it. It is shown this once."
          onClose={() => setMade(null)}
        />
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Tunnels"
            rows={items}
            idOf={({ id }) => id}
            empty={
              <>
                No tunnel leads to this socket. Run this on the machine of the service; 8000 is its port.
                <Copied text={command('sallyport tunnel connect', ['', socket.name], '8000')} what="The tunnel" />
              </>
            }
            columns={[
              { head: 'Tunnel', cell: (tunnel) => <TunnelName of={tunnel} /> },
              { head: 'State', cell: (tunnel) => <TunnelState of={tunnel} /> },
              { head: 'Edge', cell: ({ edge }) => plain(edge ?? '') },
              {
                head: 'Weight',
                cell: ({ id, name, weight }) => (
                  <Weight
                    of={name || id.slice(0, 8)}
                    value={weight ?? 100}
                    onSet={(weight) => ask('PATCH', `${path}/${to('tunnels', id).slice(1)}`, { weight }).then(onChange)}
                  />
                ),
              },
              {
                head: 'Delete',
                isAction: true,
                cell: ({ id, name }) => (
                  <Risky
                    label="Delete"
                    title="Delete this tunnel?"
                    sentence={`The tunnel ${name ?? id} ends at once, and its connector stops.`}
                    onDo={async () => doing(ask('DELETE', `${path}/${to('tunnels', id).slice(1)}`), 'The tunnel is deleted', onChange)}
                  />
                ),
              },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('POST', `${path}/tunnels`, {}), command('sallyport tunnel connect', ['', socket.name], '8000')]]} />
    </Section>
  );
}

function Origins({ path, revision, onChange }: { path: string; revision: number; onChange: () => void }) {
  const loaded = useApi<Page<DirectOrigin>>(`${path}/origins?limit=100`, revision);
  const [isOpen, setOpen] = useState(false);
  return (
    <Section title="Direct origins" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Add an origin</button>}>
      {isOpen && (
        <Form
          button="Add"
          onCancel={() => setOpen(false)}
          onSend={async ({ address = '', weight }) => {
            await ask('POST', `${path}/origins`, { address, ...(weight ? { weight: Number(weight) } : {}) });
            setOpen(false);
            onChange();
          }}
        >
          <Field label="Address" name="address" isNeeded hint="An address and a port that edges dial, such as 10.0.0.7:9000." />
          <Field label="Weight" name="weight" type="number" />
        </Form>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Direct origins"
            rows={items}
            idOf={({ id }) => id}
            empty="Edges dial no origin of this socket themselves."
            columns={[
              { head: 'Address', cell: ({ address }) => plain(address) },
              {
                head: 'Health',
                cell: ({ healthy, failure }) =>
                  failure ? <Lamp is="bad">{plain(failure.message)}</Lamp> : <Lamp is={healthy ? 'good' : 'off'}>{healthy ? 'healthy' : healthy === false ? 'failing' : 'not known'}</Lamp>,
              },
              {
                head: 'Weight',
                cell: ({ id, address, weight }) => (
                  <Weight of={address} value={weight} onSet={(weight) => ask('PATCH', `${path}/${to('origins', id).slice(1)}`, { weight }).then(onChange)} />
                ),
              },
              {
                head: 'Remove',
                isAction: true,
                cell: ({ id, address }) => (
                  <Risky
                    label="Remove"
                    title="Remove this origin?"
                    sentence={`Edges send nothing new to ${address}. Its open requests finish.`}
                    onDo={async () => doing(ask('DELETE', `${path}/${to('origins', id).slice(1)}`), 'The origin is removed', onChange)}
                  />
                ),
              },
            ]}
          />
        )}
      </Await>
    </Section>
  );
}

function Attached({ socket, revision, onChange }: { socket: Socket; revision: number; onChange: () => void }) {
  const loaded = useApi<Page<Policy>>('/v1/policies?limit=100', revision, 12);
  return (
    <Section title="Policies">
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Policies"
            rows={items}
            idOf={({ id }) => id}
            empty={<>There is no policy yet. <A to="/policies/new">Make one</A></>}
            columns={[
              { head: 'Policy', cell: ({ id, name }) => <A to={to('policies', id)}>{plain(name)}</A> },
              { head: 'Applies', cell: ({ everywhere, sockets }) => (everywhere ? 'to all sockets' : sockets.includes(socket.id) ? 'to this socket' : 'not here') },
              {
                head: 'Change',
                isAction: true,
                cell: ({ id, everywhere, sockets }) => {
                  if (everywhere) return null;
                  const isHere = sockets.includes(socket.id);
                  const what = isHere ? 'detach' : 'attach';
                  return (
                    <button type="button" onClick={() => doing(ask('POST', `${to('v1', 'policies', id)}/${what}`, { socket: socket.id }), `The policy is ${what}ed`, onChange)}>
                      {isHere ? 'Detach' : 'Attach'}
                    </button>
                  );
                },
              },
            ]}
          />
        )}
      </Await>
    </Section>
  );
}

function Traffic({ path, socket }: { path: string; socket: Socket }) {
  const stats = useApi<SocketStats>(`${path}/stats`);
  const flows = useApi<FlowPage>('/v1/flows?limit=100');
  const classes = (of: Record<string, number>) => Object.entries(of).map(([name, value]) => `${name} ${count(value)}`).join(', ');
  return (
    <Section title="Traffic">
      <Await of={stats}>
        {(all) => (
          <Facts
            of={[
              ['Requests', classes(all.requests) || 'none'],
              ['Refused', classes(all.refusals) || 'none'],
              ['Bytes', `${size(all.bytes_in)} in, ${size(all.bytes_out)} out`],
              ['First byte', all.first_byte ? `p50 ${all.first_byte.p50_ms} ms, p99 ${all.first_byte.p99_ms} ms` : ''],
            ]}
          />
        )}
      </Await>
      <Await of={flows}>{(page) => <FlowTable page={{ ...page, items: page.items.filter((flow) => flow.socket === socket.id) }} />}</Await>
      <h3>Ended lately</h3>
      <EndedFlows socket={socket.id} limit={20} />
    </Section>
  );
}
