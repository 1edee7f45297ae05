// The audit log: search at the server, and the check of its chain.
import { useState } from 'preact/hooks';
import { count, plain } from '../parts/format';
import { command } from '../parts/shell';
import { complain } from '../parts/toast';
import { ask, query, useApi } from './api';
import { Await, Field, Lamp, Place, Table, Time, Ways, Form, type Column } from './parts';
import { A, go, place, to } from './router';
import { Pages } from './sockets';
import type { AuditEvent, Page, Verification } from './wire';
import { curl } from './ways';

const FILTERS = ['kind', 'identity', 'socket', 'verdict', 'since', 'until'] as const;
const KINDS = ['', 'flow', 'admin', 'login', 'certificate', 'anycast', 'gap'] as const;

const who = ({ flow, admin, login, certificate }: AuditEvent): string => flow?.identity ?? flow?.client ?? admin?.actor ?? login?.identity ?? certificate?.identity ?? '';

/** What happened, with a link to what it is about. */
function What({ of: { kind, flow, admin, login, certificate } }: { of: AuditEvent }) {
  if (flow) {
    const what = [flow.method, flow.path].filter(Boolean).join(' ') || flow.transport;
    return (
      <>
        {plain(what)} at <A to={to('sockets', flow.socket)}>{plain(flow.socket_name)}</A>
      </>
    );
  }
  if (admin) return <>{plain([admin.action, admin.target, (admin.changed ?? []).join(', ')].filter(Boolean).join(' · '))}</>;
  if (login) return <>login by {plain(login.provider)}</>;
  if (certificate) return <>{plain(certificate.type)} certificate</>;
  return <>{kind}</>;
}

function Outcome({ of: { flow, admin, login } }: { of: AuditEvent }) {
  const outcome = flow?.verdict ?? admin?.outcome ?? login?.outcome ?? '';
  const isBad = /^(denied|refused|failed)/.test(outcome);
  const why = flow?.rule ?? admin?.reason ?? login?.reason;
  return (
    <>
      <Lamp is={isBad ? 'bad' : 'off'}>{plain(outcome)}</Lamp>
      {why && <span class="soft"> {plain(why)}</span>}
    </>
  );
}

export const eventColumns: Column<AuditEvent>[] = [
  { head: 'When', cell: ({ at }) => <Time at={at} /> },
  { head: 'Who', cell: (event) => (who(event) ? <A to={`/audit?identity=${encodeURIComponent(who(event))}`}>{plain(who(event))}</A> : null) },
  { head: 'What', cell: (event) => <What of={event} /> },
  { head: 'Outcome', cell: (event) => <Outcome of={event} /> },
];

export function Audit() {
  const asked = Object.fromEntries(FILTERS.map((name) => [name, place.value.query.get(name) ?? ''])) as Record<(typeof FILTERS)[number], string>;
  const after = place.value.query.get('after') ?? '';
  const loaded = useApi<Page<AuditEvent>>(`/v1/audit${query({ ...asked, limit: '50', after })}`);
  const search = (values: Record<string, string | undefined>) => go(`/audit${query(values)}`);
  return (
    <Place title="Audit" actions={<Verify />}>
      <Form
        key={JSON.stringify(asked)}
        button="Search"
        onSend={async ({ since, until, ...values }) => {
          const moment = (text: string | undefined) => (text ? new Date(text).toISOString() : undefined);
          search({ ...values, since: moment(since), until: moment(until) });
        }}
      >
        <div class="fields">
          <Field label="Kind" name="kind" of={KINDS} value={asked.kind} />
          <Field label="Who" name="identity" value={asked.identity} />
          <Field label="Socket" name="socket" value={asked.socket} />
          <Field label="Verdict" name="verdict" value={asked.verdict} />
          <Field label="Since" name="since" type="datetime-local" value={local(asked.since)} />
          <Field label="Until" name="until" type="datetime-local" value={local(asked.until)} />
        </div>
      </Form>
      <Await of={loaded}>
        {({ items, next }) => (
          <>
            <Table label="Events" columns={eventColumns} rows={items} idOf={({ seq }) => String(seq)} empty={next ? 'Nothing in this part of the log.' : 'No event matches.'} />
            <Pages after={after} next={next} onGo={(at) => search({ ...asked, after: at })} />
          </>
        )}
      </Await>
      <Ways
        of={[
          [
            curl('GET', `/v1/audit${query(asked)}`),
            command('sallyport audit', ['--kind', asked.kind], ['--identity', asked.identity], ['--socket', asked.socket], ['--verdict', asked.verdict], ['--since', asked.since], ['--until', asked.until]),
          ],
          [curl('GET', '/v1/audit/verify'), 'sallyport audit verify'],
        ]}
      />
    </Place>
  );
}

/** A moment as the field of the browser has it: local, without a zone. */
function local(text: string): string {
  const time = new Date(text);
  if (!text || Number.isNaN(time.getTime())) return '';
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function Verify() {
  const [found, setFound] = useState<Verification | null>(null);
  return (
    <>
      {found && (
        <span role="status">
          <Lamp is={found.is_good ? 'good' : 'bad'}>{found.is_good ? `${count(found.events)} events, none changed or missing` : `${count(found.problems.length)} problems`}</Lamp>
        </span>
      )}
      <button type="button" onClick={() => ask<Verification>('GET', '/v1/audit/verify').then(setFound, complain)}>
        Verify
      </button>
    </>
  );
}
