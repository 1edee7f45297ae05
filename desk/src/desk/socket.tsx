// One socket: its facts, settings, tunnels, origins, policies and open flows.
import { useState } from 'preact/hooks';
import { count, plain, size } from '../parts/format';
import { command } from '../parts/shell';
import { ask, tagOf, useApi } from './api';
import { FlowTable } from './flows';
import { Await, doing, Facts, Field, Form, Lamp, listOf, Once, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, go, to } from './router';
import { SocketState } from './sockets';
import { TunnelName, TunnelState } from './tunnels';
import type { CreatedTunnel, DirectOrigin, FlowPage, Page, Policy, Socket, SocketStats, Tunnel } from './wire';
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
            <Risky
              label="Delete"
              title={`Delete ${socket.name}?`}
              sentence="The socket and its tunnels end at once. No other organisation ever gets its public name."
              onDo={async () => doing(ask('DELETE', path), 'The socket is deleted', () => go('/sockets'))}
            />
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
        ['Domains', (socket.domains ?? []).map(plain).join(', ')],
        ['Login', socket.identity ? 'required' : socket.protected ? 'user name and password' : ''],
        ['Created', <Time at={socket.created_at} />],
        ['Note', (socket.notes ?? []).map(plain).join(' ')],
      ]}
    />
  );
}

const NUMBERS = ['max_connections', 'requests_per_second', 'bytes_per_second'] as const;

function Settings({ socket, path, onChange }: Shown) {
  const [tag, setTag] = useState<string | null>(null);
  const [isOpen, setOpen] = useState(false);
  const open = () => {
    setTag(tagOf(path));
    setOpen(true);
  };
  const { allow = [], deny = [] } = socket.access ?? {};
  const limits = socket.limits ?? {};
  const limitsOf = (values: Record<string, string>) => Object.fromEntries(NUMBERS.flatMap((name) => (values[name] ? [[name, Number(values[name])]] : [])));
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
          line={({ allow, deny }) => command('sallyport socket edit', ['--allow', listOf(allow).join(',')], ['--deny', listOf(deny).join(',')], ['', socket.name])}
          onSend={async (values) => {
            const body = { access: { allow: listOf(values.allow), deny: listOf(values.deny) }, limits: { ...limits, ...Object.fromEntries(NUMBERS.map((name) => [name, 0])), ...limitsOf(values) } };
            await ask('PATCH', path, body, { tag });
            setOpen(false);
            onChange();
          }}
        >
          <Field label="Clients that are allowed" name="allow" lines={3} value={allow.join('\n')} hint="A network, country:CH or asn:64500 in each line. Empty: all clients." />
          <Field label="Clients that are denied" name="deny" lines={3} value={deny.join('\n')} />
          <Field label="Most connections" name="max_connections" type="number" value={limits.max_connections ? String(limits.max_connections) : ''} hint="Empty: no limit." />
          <Field label="Requests a second" name="requests_per_second" type="number" value={limits.requests_per_second ? String(limits.requests_per_second) : ''} />
          <Field label="Bytes a second" name="bytes_per_second" type="number" value={limits.bytes_per_second ? String(limits.bytes_per_second) : ''} />
        </Form>
      )}
    </Section>
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
            empty="No tunnel leads to this socket. Run the command below on the machine of the service."
            columns={[
              { head: 'Tunnel', cell: (tunnel) => <TunnelName of={tunnel} /> },
              { head: 'State', cell: (tunnel) => <TunnelState of={tunnel} /> },
              { head: 'Edge', cell: ({ edge }) => plain(edge ?? '') },
              { head: 'Weight', cell: ({ weight }) => weight ?? '' },
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
              { head: 'Weight', cell: ({ weight }) => weight },
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
            empty="There is no policy yet."
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
    </Section>
  );
}
