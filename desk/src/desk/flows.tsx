// Open flows: who is connected, to what, and cutting one off.
import { plain, size } from '../parts/format';
import { ask } from './api';
import { doing, Risky, Table, Time } from './parts';
import { A, to } from './router';
import type { Flow, FlowPage } from './wire';

const cut = async (id: string): Promise<void> => {
  await ask('DELETE', to('v1', 'flows', id));
};

export function FlowTable({ page }: { page: FlowPage }) {
  return (
    <>
      {(page.silent ?? []).map(({ edge, why }) => (
        <p key={edge} class="note-line bad">
          The flows of the edge {plain(edge)} are missing: {plain(why)}
        </p>
      ))}
      <Table<Flow>
        label="Open flows"
        rows={page.items}
        idOf={({ id }) => id}
        empty="No connection is open."
        columns={[
          { head: 'Since', cell: ({ began }) => <Time at={began} /> },
          { head: 'Who', cell: ({ identity, client }) => (identity ? <A to={`/audit?identity=${encodeURIComponent(identity)}`}>{plain(identity)}</A> : plain(client)) },
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
