// Edges: the list with their health, and one edge with its drain, its round trips, its prefixes and its balancers.
import { useState } from 'preact/hooks';
import { count, ms, plain, size } from '../parts/format';
import { command } from '../parts/shell';
import { ask, useApi } from './api';
import { Await, Copied, doing, Facts, Lamp, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, to } from './router';
import type { AnycastEdgePrefix, AnycastStatus, Balancer, Edge, Page, Way, WayPage } from './wire';
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
            empty={
              <>
                No edge has joined; <code>sallyport up</code> serves clients without one. This makes the token with which an edge joins:
                <Copied text="sallyport edge token create" what="The command" />
              </>
            }
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
                ['Round trip', ms(edge.round_trip_ms)],
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
            <RoundTrips name={edge.name} />
            <Anycast name={edge.name} />
            <Balancers id={edge.id} />
          </Place>
        );
      }}
    </Await>
  );
}

/** What the edge has measured on its ways. */
function RoundTrips({ name }: { name: string }) {
  const path = `/v1/edges/ways?edge=${encodeURIComponent(name)}`;
  const loaded = useApi<WayPage>(path, 0, 6);
  return (
    <Section title="Round trips">
      <Await of={loaded}>
        {({ items }) => (
          <Table<Way>
            label="Round trips"
            rows={items}
            idOf={({ to, kind, by }) => `${to} ${kind} ${by}`}
            empty="The edge has measured no way yet."
            columns={[
              { head: 'To', cell: ({ to }) => plain(to) },
              { head: 'Kind', cell: ({ kind }) => kind },
              { head: 'Shortest', cell: ({ min_ms }) => ms(min_ms) },
              { head: 'Median', cell: ({ median_ms }) => ms(median_ms) },
              { head: 'Lost', cell: ({ recent, recent_lost }) => `${count(recent_lost)} of ${count(recent)}` },
              { head: 'Problem', cell: ({ failure }) => plain(failure ?? '') },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', path), command('sallyport edge ways', ['', name])]]} />
    </Section>
  );
}

/** The prefixes that the edge announces, and the routers that it speaks with. */
function Anycast({ name }: { name: string }) {
  const loaded = useApi<AnycastStatus>('/v1/anycast/status', 0, 6);
  return (
    <Section title="Anycast">
      <Await of={loaded}>
        {({ edges = [] }) => {
          const here = edges.find(({ edge }) => edge === name);
          if (!here) return <p class="soft none">This edge announces no prefix.</p>;
          return (
            <>
              {(here.problems ?? []).map((problem) => (
                <p key={problem} class="note-line bad">
                  {plain(problem)}
                </p>
              ))}
              <Table<AnycastEdgePrefix>
                label="Prefixes"
                rows={here.prefixes}
                idOf={({ prefix }) => prefix}
                empty="This edge announces no prefix."
                columns={[
                  { head: 'Prefix', cell: ({ prefix }) => plain(prefix) },
                  { head: 'State', cell: ({ state }) => <Lamp is={({ announced: 'good', deprioritised: 'warn', withdrawn: 'off' } as const)[state]}>{state}</Lamp> },
                  { head: 'Why', cell: ({ why }) => plain(why) },
                  { head: 'Since', cell: ({ since }) => <Time at={since} /> },
                ]}
              />
              <Facts of={here.peers.map(({ name: peer, is_up, state }) => [plain(peer), <Lamp is={is_up ? 'good' : 'bad'}>{plain(state)}</Lamp>])} />
            </>
          );
        }}
      </Await>
      <Ways of={[[curl('GET', '/v1/anycast/status'), 'sallyport anycast status']]} />
    </Section>
  );
}

/** The balancers that send clients to the edge. */
function Balancers({ id }: { id: string }) {
  const loaded = useApi<Page<Balancer>>('/v1/balancers', 0, 6);
  return (
    <Section title="Balancers">
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Balancers"
            rows={items.flatMap(({ site, addresses, edges }) => edges.filter((edge) => edge.id === id).map((edge) => ({ site, addresses, edge })))}
            idOf={({ site }) => site}
            empty="No balancer sends clients to this edge."
            columns={[
              { head: 'Site', cell: ({ site }) => plain(site) },
              { head: 'Addresses', cell: ({ addresses }) => addresses.map(plain).join(', ') },
              { head: 'State', cell: ({ edge: { state } }) => <Lamp is={({ serving: 'good', draining: 'warn', down: 'bad' } as const)[state]}>{state}</Lamp> },
              { head: 'Weight', cell: ({ edge: { weight } }) => weight },
              { head: 'Why', cell: ({ edge: { why } }) => plain(why ?? '') },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/balancers'), 'sallyport balancer ls']]} />
    </Section>
  );
}
