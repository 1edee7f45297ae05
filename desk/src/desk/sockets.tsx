// Sockets: the list, and a new one.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, query, useApi } from './api';
import { Await, Field, Form, Lamp, listOf, Place, Table, Ways } from './parts';
import { A, go, to } from './router';
import type { Page, Socket } from './wire';
import { curl } from './ways';

const TYPES = ['http', 'https', 'tcp', 'tls', 'udp'] as const;

/** Whether clients reach an origin. */
export function SocketState({ of: socket }: { of: Socket }) {
  if (socket.failure) return <Lamp is="bad">{plain(socket.failure.message)}</Lamp>;
  if (socket.tunnels_up) return <Lamp is={socket.origins_failing ? 'warn' : 'good'}>{socket.origins_failing ? `${socket.origins_failing} failing` : 'up'}</Lamp>;
  return <Lamp is="off">{socket.tunnels_total ? 'no tunnel is up' : 'no tunnel'}</Lamp>;
}

export function Sockets() {
  const [after, setAfter] = useState('');
  const page = useApi<Page<Socket>>(`/v1/sockets${query({ limit: '50', after })}`);
  return (
    <Place title="Sockets" actions={<A to="/sockets/new" class="act">New socket</A>}>
      <Await of={page}>
        {({ items, next }) => (
          <>
            <Table
              label="Sockets"
              rows={items}
              idOf={({ id }) => id}
              empty="There is no socket yet. A socket is the public name of a private service."
              columns={[
                { head: 'Name', cell: (socket) => <A to={to('sockets', socket.id)}>{plain(socket.name)}</A> },
                { head: 'Address', cell: ({ url }) => plain(url) },
                { head: 'Type', cell: ({ type }) => type },
                { head: 'State', cell: (socket) => <SocketState of={socket} /> },
                { head: 'Tunnels', cell: ({ tunnels_up, tunnels_total }) => `${tunnels_up} of ${tunnels_total}` },
              ]}
            />
            <Pages after={after} next={next} onGo={setAfter} />
          </>
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/sockets'), 'sallyport socket ls']]} />
    </Place>
  );
}

/** The ways to the next page of a list, and back to the first. */
export function Pages({ after, next, onGo }: { after: string; next: string | null | undefined; onGo: (after: string) => void }) {
  if (!after && !next) return null;
  return (
    <div class="bar">
      {after && (
        <button type="button" onClick={() => onGo('')}>
          First page
        </button>
      )}
      {next && (
        <button type="button" onClick={() => onGo(next)}>
          Next page
        </button>
      )}
    </div>
  );
}

const bodyOf = ({ name = '', type = 'http', allow }: Record<string, string>) => ({
  name,
  type,
  ...(listOf(allow).length ? { access: { allow: listOf(allow), deny: [] } } : {}),
});

export function NewSocket() {
  return (
    <Place title="New socket">
      <Form
        button="Create"
        onCancel={() => go('/sockets')}
        line={({ name, type, allow }) => command('sallyport socket create', ['--name', name || 'NAME'], ['--type', type], ['--allow', listOf(allow).join(',')])}
        onSend={async (values) => {
          const made = await ask<Socket>('POST', '/v1/sockets', bodyOf(values));
          go(to('sockets', made.id));
        }}
      >
        <Field label="Name" name="name" isNeeded hint="For you and your colleagues. The public name is generated." />
        <Field label="Type" name="type" of={TYPES} hint="http for web services; tcp, tls and udp get a port of their own." />
        <Field label="Clients that are allowed" name="allow" lines={3} hint="A network, country:CH or asn:64500 in each line. Empty: all clients." />
      </Form>
      <Ways of={[[curl('POST', '/v1/sockets', { name: 'web', type: 'http' }), 'sallyport socket create --name web']]} />
    </Place>
  );
}
