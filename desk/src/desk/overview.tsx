// The overview: the first steps, what needs attention, what is open, and who was refused.
import { useEffect } from 'preact/hooks';
import { countOf, plain } from '../parts/format';
import { command } from '../parts/shell';
import { organisation, session, useApi } from './api';
import { eventColumns } from './audit';
import { FlowTable } from './flows';
import { Await, Copied, Lamp, Place, Section, Table, Ways } from './parts';
import { A, to } from './router';
import { SocketState } from './sockets';
import type { AuditEvent, Certificate, Edge, FlowPage, Page, Socket, SocketStats } from './wire';
import { apiUrl, curl } from './ways';

/** Whether the service behind a socket has answered: to a request of HTTP, or on a connection. An edge's own error has no
 * first byte. The audit log lacks requests to sockets that ask nobody to log in. */
const hasAnswered = ({ first_byte, flows, bytes_out }: SocketStats): boolean => Boolean(first_byte || (Object.keys(flows).length && bytes_out));

/** Where this browser keeps that the service has answered: edges forget what they counted when they end. */
const startedKey = (): string => `sallyport-desk-started ${session.value?.account?.id} ${organisation.value}`;

/** The first steps, until the service behind the socket that they lead to has answered. */
function UntilStarted({ socket }: { socket: Socket }) {
  const stats = useApi<SocketStats>(`${to('v1', 'sockets', socket.id)}/stats`);
  const isStarted = stats.is === 'there' && hasAnswered(stats.value);
  useEffect(() => {
    if (isStarted) localStorage.setItem(startedKey(), 'yes');
  }, [isStarted]);
  if (stats.is === 'loading' || isStarted || localStorage.getItem(startedKey())) return null;
  return <FirstSteps socket={socket} />;
}

/** The steps from nothing to the first public request. */
function FirstSteps({ socket }: { socket?: Socket | undefined }) {
  const isUp = Boolean(socket?.tunnels_up);
  const name = socket ? socket.name : 'web';
  const steps: [string, boolean, preact.ComponentChildren][] = [
    ['An account', true, null],
    [
      'A socket: the public name of your service',
      Boolean(socket),
      socket ? <A to={to('sockets', socket.id)}>{plain(socket.url)}</A> : <A to="/sockets/new" class="act">Create a socket</A>,
    ],
    [
      'A login on the machine of the service',
      isUp,
      <Copied text={command('sallyport login', ['--api', apiUrl()], ['--email', session.value?.account?.email])} what="The login" />,
    ],
    ['A tunnel from there: 8000 is the port of the service', isUp, <Copied text={command('sallyport tunnel connect', ['', name], '8000')} what="The tunnel" />],
    ['The first request from outside', false, socket ? <a href={socket.url} target="_blank" rel="noreferrer">Open {plain(socket.url)}</a> : null],
  ];
  const next = steps.findIndex(([, isDone]) => !isDone);
  return (
    <Section title="First steps">
      <ol class="steps">
        {steps.map(([label, isDone, what], at) => (
          <li key={label} class={isDone ? 'done' : at === next ? 'next' : ''} {...(at === next ? { 'aria-current': 'step' as const } : {})}>
            <strong>{label}</strong> {isDone && <Lamp is="good">done</Lamp>}
            {(at === next || (isDone && at === 1)) && what && <div>{what}</div>}
          </li>
        ))}
      </ol>
    </Section>
  );
}

function Numbers({ sockets, isOwner }: { sockets: Socket[]; isOwner: boolean }) {
  const up = sockets.filter(({ tunnels_up }) => tunnels_up).length;
  const tunnels = sockets.reduce((sum, { tunnels_up }) => sum + tunnels_up, 0);
  return (
    <ul class="numbers">
      <li>
        <A to="/sockets">
          <strong>{sockets.length}</strong> {sockets.length === 1 ? 'socket' : 'sockets'}, {up} with a tunnel
        </A>
      </li>
      <li>
        <A to="/tunnels">
          <strong>{tunnels}</strong> {tunnels === 1 ? 'tunnel' : 'tunnels'} up
        </A>
      </li>
      {isOwner && <EdgeNumber />}
    </ul>
  );
}

function EdgeNumber() {
  const edges = useApi<Page<Edge>>('/v1/edges');
  // A server that is edge itself lists none.
  if (edges.is !== 'there' || !edges.value.items.length) return null;
  const up = edges.value.items.filter(({ state }) => state === 'up').length;
  return (
    <li>
      <A to="/edges">
        <strong>{up}</strong> of {countOf(edges.value.items.length, 'edge')} up
      </A>
    </li>
  );
}

/** Sockets that nobody reaches, and certificates that cannot be renewed. */
function Attention({ sockets }: { sockets: Socket[] }) {
  const certificates = useApi<Page<Certificate>>('/v1/certificates?limit=100', 0, 12);
  const silent = sockets.filter(({ tunnels_total, tunnels_up, failure }) => failure || (tunnels_total > 0 && !tunnels_up));
  const failing = certificates.is === 'there' ? certificates.value.items.filter(({ state }) => state === 'failing' || state === 'expired') : [];
  if (!silent.length && !failing.length) return null;
  return (
    <Section title="Needs attention">
      <ul class="plain-list">
        {silent.map((socket) => (
          <li key={socket.id}>
            <A to={to('sockets', socket.id)}>{plain(socket.name)}</A> <SocketState of={socket} />
          </li>
        ))}
        {failing.map(({ id, names, problem, state }) => (
          <li key={id}>
            <A to="/domains">{plain(names[0] ?? id)}</A> <Lamp is="bad">certificate {state}</Lamp> {problem && plain(problem)}
          </li>
        ))}
      </ul>
    </Section>
  );
}

export function Overview({ isOwner }: { isOwner: boolean }) {
  const sockets = useApi<Page<Socket>>('/v1/sockets?limit=100');
  const flows = useApi<FlowPage>('/v1/flows?limit=20');
  const uses = useApi<Page<AuditEvent>>('/v1/audit?kind=flow&verdict=complete&limit=1');
  const refusals = useApi<Page<AuditEvent>>('/v1/audit?kind=flow&verdict=denied&limit=5');
  return (
    <Place title="Overview">
      <Await of={sockets}>
        {({ items }) => {
          const led = items.find(({ tunnels_up }) => tunnels_up) ?? items[0];
          const isUsed = uses.is === 'there' && uses.value.items.length > 0;
          return (
            <>
              {!isUsed && (led ? <UntilStarted socket={led} /> : <FirstSteps />)}
              <Numbers sockets={items} isOwner={isOwner} />
              <Attention sockets={items} />
            </>
          );
        }}
      </Await>
      <Section title="Open now">
        <Await of={flows}>{(page) => <FlowTable page={page} />}</Await>
      </Section>
      <Section title="Refused lately">
        <Await of={refusals}>
          {({ items }) => <Table label="Refused lately" columns={eventColumns} rows={items} idOf={({ seq }) => String(seq)} empty="Nobody was refused." />}
        </Await>
      </Section>
      <Ways
        of={[
          [curl('GET', '/v1/sockets'), 'sallyport socket ls'],
          [curl('GET', '/v1/flows'), 'sallyport flow ls'],
        ]}
      />
    </Place>
  );
}
