// The plan of the steering for one socket: who sends how much to whom, and why.
import { count, plain } from '../parts/format';
import { command } from '../parts/shell';
import { useApi } from './api';
import { Await, Lamp, Place, Section, Table, Ways } from './parts';
import { A, to } from './router';
import type { PlannedEdge, PlannedOrigin, SocketPlan } from './wire';
import { curl } from './ways';

const rate = (value: number | null | undefined): string => (value == null ? 'any' : `${value < 10 ? value.toFixed(1) : count(Math.round(value))}/s`);

export function Plan({ id }: { id: string }) {
  const path = `${to('v1', 'sockets', id)}/plan`;
  const loaded = useApi<SocketPlan>(path);
  return (
    <Place title="Plan of the steering" actions={<A to={to('sockets', id)}>To the socket</A>}>
      <Await of={loaded}>
        {({ words, origins, edges }) => {
          const nameOf = (origin: string) => origins.find((one) => one.origin === origin)?.name ?? origin;
          return (
            <>
              <ul class="plain-list">
                {words.map((line) => (
                  <li key={line}>{plain(line)}</li>
                ))}
              </ul>
              <Section title="Origins">
                <Table<PlannedOrigin>
                  label="Origins"
                  rows={origins}
                  idOf={({ origin }) => origin}
                  empty="No origin is up."
                  columns={[
                    { head: 'Origin', cell: ({ name }) => plain(name) },
                    { head: 'Region', cell: ({ region }) => plain(region ?? '') },
                    { head: 'Gets', cell: ({ rps }) => rate(rps) },
                    { head: 'Planned', cell: ({ planned_rps }) => rate(planned_rps) },
                    { head: 'Limit', cell: ({ max_rps, is_learned, shared }) => `${rate(max_rps)}${is_learned ? ', learned' : ''}${shared ? `, shared as ${plain(shared)}` : ''}` },
                    { head: 'Open', cell: ({ open }) => count(open) },
                    { head: 'Answer', cell: ({ latency_ms }) => (latency_ms == null ? '' : `${latency_ms.toFixed(1)} ms`) },
                  ]}
                />
              </Section>
              <Section title="Edges">
                <Table<PlannedEdge>
                  label="Edges"
                  rows={edges}
                  idOf={({ edge }) => edge}
                  empty="No edge is up."
                  columns={[
                    { head: 'Edge', cell: ({ edge }) => plain(edge) },
                    { head: 'Region', cell: ({ region }) => plain(region) },
                    { head: 'Heard', cell: ({ is_heard }) => <Lamp is={is_heard ? 'good' : 'bad'}>{is_heard ? 'yes' : 'no'}</Lamp> },
                    { head: 'Comes in', cell: ({ rps }) => rate(rps) },
                    { head: 'Refused', cell: ({ refused_rps }) => rate(refused_rps) },
                    { head: 'Sends to', cell: ({ shares }) => shares.map(({ origin, planned_rps }) => `${plain(nameOf(origin))} ${rate(planned_rps)}`).join(', ') },
                  ]}
                />
              </Section>
            </>
          );
        }}
      </Await>
      <Ways of={[[curl('GET', path), command('sallyport socket plan', ['', id])]]} />
    </Place>
  );
}
