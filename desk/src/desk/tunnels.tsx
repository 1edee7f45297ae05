// Tunnels of all sockets.
import { plain } from '../parts/format';
import { useLoaded } from '../parts/use';
import { ask, organisation, tick } from './api';
import { Await, Lamp, Place, Table, Time, Ways } from './parts';
import { A, to } from './router';
import type { Page, Socket, Tunnel } from './wire';
import { curl } from './ways';

const EVERY_TICKS = 6;

export const TunnelName = ({ of: { name, id } }: { of: Tunnel }) => <span title={id}>{plain(name || id.slice(0, 8))}</span>;

export function TunnelState({ of: { status, failure, healthy } }: { of: Tunnel }) {
  if (failure) return <Lamp is="bad">{plain(failure.message)}</Lamp>;
  if (status === 'up') return <Lamp is={healthy === false ? 'warn' : 'good'}>{healthy === false ? 'failing' : 'up'}</Lamp>;
  return <Lamp is="off">down</Lamp>;
}

interface Row {
  socket: Socket;
  tunnel: Tunnel;
}

/** The tunnels of each socket that has any: the API lists them by socket. */
async function read(gone: AbortSignal): Promise<Row[]> {
  const sockets = await ask<Page<Socket>>('GET', '/v1/sockets?limit=100', undefined, { signal: gone });
  const rows: Row[] = [];
  for (const socket of sockets.items.filter(({ tunnels_total }) => tunnels_total)) {
    const page = await ask<Page<Tunnel>>('GET', `${to('v1', 'sockets', socket.id)}/tunnels?limit=100`, undefined, { signal: gone });
    rows.push(...page.items.map((tunnel) => ({ socket, tunnel })));
  }
  return rows;
}

export function Tunnels() {
  const loaded = useLoaded(read, `${organisation.value} tunnels`, Math.floor(tick.value / EVERY_TICKS));
  return (
    <Place title="Tunnels">
      <Await of={loaded}>
        {(rows) => (
          <Table<Row>
            label="Tunnels"
            rows={rows}
            idOf={({ tunnel }) => tunnel.id}
            empty={<>There is no tunnel yet. The page of a <A to="/sockets">socket</A> has the command that makes one.</>}
            columns={[
              { head: 'Tunnel', cell: ({ tunnel }) => <TunnelName of={tunnel} /> },
              { head: 'Socket', cell: ({ socket }) => <A to={to('sockets', socket.id)}>{plain(socket.name)}</A> },
              { head: 'State', cell: ({ tunnel }) => <TunnelState of={tunnel} /> },
              { head: 'Connector', cell: ({ tunnel }) => plain([tunnel.host, tunnel.agent].filter(Boolean).join(', ')) },
              { head: 'Edge', cell: ({ tunnel }) => plain([tunnel.edge, tunnel.region].filter(Boolean).join(', ')) },
              { head: 'Since', cell: ({ tunnel }) => <Time at={tunnel.since} /> },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/sockets/ID/tunnels'), 'sallyport tunnel ls']]} />
    </Place>
  );
}
