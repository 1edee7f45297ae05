// Edges: the list with their health, and one edge with its drain.
import { useState } from 'preact/hooks';
import { count, plain, size } from '../parts/format';
import { command } from '../parts/shell';
import { ask, useApi } from './api';
import { Await, doing, Facts, Lamp, Place, Risky, Table, Time, Ways } from './parts';
import { A, to } from './router';
import type { Edge, Page } from './wire';
import { curl } from './ways';

const EdgeState = ({ of: { state } }: { of: Edge }) => <Lamp is={({ up: 'good', draining: 'warn', down: 'bad', unknown: 'off' } as const)[state]}>{state}</Lamp>;

export function Edges() {
  const loaded = useApi<Page<Edge>>('/v1/edges');
  return (
    <Place title="Edges">
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Edges"
            rows={items}
            idOf={({ id }) => id}
            empty="There is no edge."
            columns={[
              { head: 'Name', cell: ({ id, name }) => <A to={to('edges', id)}>{plain(name)}</A> },
              { head: 'Region', cell: ({ region }) => plain(region) },
              { head: 'State', cell: (edge) => <EdgeState of={edge} /> },
              { head: 'Tunnels', cell: ({ tunnels }) => count(tunnels ?? 0) },
              { head: 'Open flows', cell: ({ flows }) => (flows == null ? '' : count(flows)) },
              { head: 'Version', cell: ({ version }) => plain(version ?? '') },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/edges'), 'sallyport edge ls']]} />
    </Place>
  );
}

export function OneEdge({ id }: { id: string }) {
  const [revision, setRevision] = useState(0);
  const loaded = useApi<Page<Edge>>('/v1/edges', revision);
  const path = to('v1', 'edges', id);
  const again = () => setRevision((old) => old + 1);
  return (
    <Await of={loaded}>
      {({ items }) => {
        const edge = items.find((one) => one.id === id);
        if (!edge) return <Place title="No such edge"><p><A to="/edges">To the edges</A></p></Place>;
        const drain = (
          <Risky
            label="Drain"
            title={`Drain ${edge.name}?`}
            sentence="Its clients and connectors move to other edges. The server refuses when no other edge serves."
            onDo={async () => doing(ask('POST', `${path}/drain`, {}), 'The edge drains', again)}
          />
        );
        const resume = (
          <button type="button" onClick={() => doing(ask('POST', `${path}/resume`, {}), 'The edge serves again', again)}>
            Resume
          </button>
        );
        return (
          <Place title={edge.name} actions={edge.state === 'draining' ? resume : drain}>
            <Facts
              of={[
                ['State', <EdgeState of={edge} />],
                ['Region', plain(edge.region)],
                ['Addresses', (edge.addresses ?? []).map(plain).join(', ')],
                ['Drains until', edge.drain_until ? <Time at={edge.drain_until} /> : ''],
                ['Version', plain(edge.version ?? '')],
                ['Tunnels', count(edge.tunnels ?? 0)],
                ['Open flows', edge.flows == null ? '' : count(edge.flows)],
                ['Connections', edge.connections == null ? '' : count(edge.connections)],
                ['Memory', edge.memory_bytes == null ? '' : size(edge.memory_bytes)],
                ['Round trip', edge.round_trip_ms == null ? '' : `${edge.round_trip_ms.toFixed(1)} ms`],
                ['Last heard', edge.heard_at ? <Time at={edge.heard_at} /> : ''],
                ['Joined', <Time at={edge.created_at} />],
              ]}
            />
            <Ways
              of={[
                [curl('POST', `${path}/drain`, {}), command('sallyport edge drain', ['', edge.name])],
                [curl('POST', `${path}/resume`, {}), command('sallyport edge resume', ['', edge.name])],
              ]}
            />
          </Place>
        );
      }}
    </Await>
  );
}
