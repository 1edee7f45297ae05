// Flows: who is connected to what, and cutting one off; the requests and connections that ended lately, and why.
import { duration, plain, size } from '../parts/format';
import { command } from '../parts/shell';
import { ask, query, useApi } from './api';
import { Await, doing, Lamp, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, go, place, to } from './router';
import { Pages } from './sockets';
import type { EndedFlow, EndedFlowPage, Flow, FlowPage, SilentEdge } from './wire';
import { curl } from './ways';

const cut = async (id: string): Promise<void> => {
  await ask('DELETE', to('v1', 'flows', id));
};

/** The edges that did not answer, so that their flows are missing. */
const Silent = ({ edges = [] }: { edges?: SilentEdge[] | undefined }) => (
  <>
    {edges.map(({ edge, why }) => (
      <p key={edge} class="note-line bad">
        The flows of the edge {plain(edge)} are missing: {plain(why)}
      </p>
    ))}
  </>
);

const Who = ({ of: { identity, client } }: { of: Pick<EndedFlow, 'identity' | 'client'> }) =>
  identity ? <A to={`/audit?identity=${encodeURIComponent(identity)}`}>{plain(identity)}</A> : <>{plain(client ?? '')}</>;

export function Flows() {
  const after = place.value.query.get('after') ?? '';
  const path = `/v1/flows${query({ limit: '50', after })}`;
  const loaded = useApi<FlowPage>(path);
  return (
    <Place title="Flows">
      <Section title="Open now">
        <Await of={loaded}>
          {(page) => (
            <>
              <FlowTable page={page} />
              <Pages after={after} next={page.next} onGo={(at) => go(`/flows${query({ after: at })}`)} />
            </>
          )}
        </Await>
      </Section>
      <Section title="Ended lately">
        <EndedFlows limit={50} />
      </Section>
      <Ways
        of={[
          [curl('GET', '/v1/flows'), 'sallyport flow ls'],
          [curl('GET', '/v1/flows/log'), 'sallyport flow log'],
          [curl('DELETE', '/v1/flows/ID'), command('sallyport flow kill', ['', 'ID'])],
        ]}
      />
    </Place>
  );
}

/** Whether the edge or the service let the client down. */
const stateOf = ({ verdict, status }: EndedFlow): 'good' | 'warn' | 'bad' => {
  if (verdict !== 'complete' || (status ?? 0) >= 500) return 'bad';
  return (status ?? 0) >= 400 ? 'warn' : 'good';
};

/** The requests and connections that ended lately, the newest first: of one socket, or of all. */
export function EndedFlows({ socket, limit }: { socket?: string; limit: number }) {
  const loaded = useApi<EndedFlowPage>(`/v1/flows/log${query({ socket, limit: String(limit) })}`);
  return (
    <Await of={loaded}>
      {({ items, silent }) => (
        <>
          <Silent edges={silent} />
          <Table<EndedFlow>
            label="Ended lately"
            rows={items.toReversed()}
            idOf={({ id, ended }) => `${id} ${ended}`}
            empty="No request has come lately."
            columns={[
              { head: 'Ended', cell: ({ ended }) => <Time at={ended} /> },
              { head: 'Who', cell: (flow) => <Who of={flow} /> },
              ...(socket ? [] : [{ head: 'Socket', cell: ({ socket: id, socket_name }: EndedFlow) => <A to={to('sockets', id)}>{plain(socket_name)}</A> }]),
              { head: 'What', cell: ({ method, path, transport }) => plain([method, path].filter(Boolean).join(' ') || transport) },
              {
                head: 'Outcome',
                cell: (flow) => (
                  <>
                    <Lamp is={stateOf(flow)}>{plain([flow.status, flow.verdict].filter(Boolean).join(' '))}</Lamp>
                    {flow.rule && <span class="soft"> {plain(flow.rule)}</span>}
                  </>
                ),
              },
              { head: 'Took', cell: ({ duration_ms }) => duration(duration_ms) },
              { head: 'Bytes', cell: ({ bytes_in, bytes_out }) => `${size(bytes_in)} in, ${size(bytes_out)} out` },
            ]}
          />
        </>
      )}
    </Await>
  );
}

export function FlowTable({ page }: { page: FlowPage }) {
  return (
    <>
      <Silent edges={page.silent} />
      <Table<Flow>
        label="Open flows"
        rows={page.items}
        idOf={({ id }) => id}
        empty="No connection is open."
        columns={[
          { head: 'Since', cell: ({ began }) => <Time at={began} /> },
          { head: 'Who', cell: (flow) => <Who of={flow} /> },
          { head: 'Socket', cell: ({ socket, socket_name }) => <A to={to('sockets', socket)}>{plain(socket_name)}</A> },
          { head: 'Bytes', cell: ({ bytes }) => size(bytes) },
          {
            head: 'Cut',
            isAction: true,
            cell: ({ id, socket_name }) => (
              <Risky
                label="Cut"
                title="Cut this connection?"
                sentence={`The connection to ${socket_name} ends at once. Its client may connect again.`}
                onDo={async () => doing(cut(id), 'The connection is cut')}
              />
            ),
          },
        ]}
      />
    </>
  );
}
