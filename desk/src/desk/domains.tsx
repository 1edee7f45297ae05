// Domains with the records that prove them, and certificates.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, useApi } from './api';
import { Await, doing, Facts, Field, Form, Lamp, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, go, to } from './router';
import type { Certificate, Domain, Page } from './wire';
import { curl } from './ways';

const DomainState = ({ of: { state } }: { of: Domain }) => <Lamp is={({ pending: 'warn', verified: 'good', missing: 'bad' } as const)[state]}>{state}</Lamp>;

/** A certificate is good only while its time has not run out, whatever its state says. */
function CertificateState({ of: { state, not_after } }: { of: Certificate }) {
  const isOver = not_after ? Date.parse(not_after) <= Date.now() : false;
  if (isOver) return <Lamp is="bad">expired</Lamp>;
  return <Lamp is={({ waiting: 'warn', valid: 'good', failing: 'bad', expired: 'bad' } as const)[state]}>{state}</Lamp>;
}

export function Domains() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const domains = useApi<Page<Domain>>('/v1/domains?limit=100', revision, 6);
  const certificates = useApi<Page<Certificate>>('/v1/certificates?limit=100', revision, 6);
  const again = () => setRevision((old) => old + 1);
  return (
    <Place title="Domains" actions={!isOpen && <button type="button" class="main" onClick={() => setOpen(true)}>Add a domain</button>}>
      {isOpen && (
        <Form
          button="Add"
          onCancel={() => setOpen(false)}
          line={({ name }) => command('sallyport domain add', ['', name || 'NAME'])}
          onSend={async ({ name = '' }) => {
            const made = await ask<Domain>('POST', '/v1/domains', { name });
            go(to('domains', made.name));
          }}
        >
          <Field label="Domain" name="name" isNeeded hint="Such as app.example.com, or *.example.com." />
        </Form>
      )}
      <Await of={domains}>
        {({ items }) => (
          <Table
            label="Domains"
            rows={items}
            idOf={({ id }) => id}
            empty="There is no domain of yours yet. With one, clients reach a socket by a name of yours."
            columns={[
              { head: 'Domain', cell: ({ name }) => <A to={to('domains', name)}>{plain(name)}</A> },
              { head: 'State', cell: (domain) => <DomainState of={domain} /> },
              { head: 'Socket', cell: ({ socket }) => (socket ? <A to={to('sockets', socket)}>{plain(socket.slice(0, 8))}</A> : 'none') },
              { head: 'Checked', cell: ({ checked_at }) => <Time at={checked_at} /> },
            ]}
          />
        )}
      </Await>
      <Section title="Certificates">
        <Await of={certificates}>
          {({ items }) => (
            <Table
              label="Certificates"
              rows={items}
              idOf={({ id }) => id}
              empty="The server has ordered no certificate for a name of yours."
              columns={[
                { head: 'Names', cell: ({ names }) => names.map(plain).join(', ') },
                { head: 'State', cell: (certificate) => <CertificateState of={certificate} /> },
                { head: 'Ends', cell: ({ not_after }) => <Time at={not_after} /> },
                { head: 'Issuer', cell: ({ issuer }) => plain(issuer ?? '') },
                { head: 'Problem', cell: ({ problem }) => plain(problem ?? '') },
                {
                  head: 'Renew',
                  isAction: true,
                  cell: ({ id, source }) =>
                    source === 'imported' ? null : (
                      <button type="button" onClick={() => doing(ask('POST', `${to('v1', 'certificates', id)}/renew`, {}), 'The certificate is ordered', again)}>
                        Renew
                      </button>
                    ),
                },
              ]}
            />
          )}
        </Await>
      </Section>
      <Ways
        of={[
          [curl('GET', '/v1/domains'), 'sallyport domain ls'],
          [curl('GET', '/v1/certificates'), 'sallyport cert ls'],
        ]}
      />
    </Place>
  );
}

export function OneDomain({ name }: { name: string }) {
  const path = to('v1', 'domains', name);
  const [revision, setRevision] = useState(0);
  const loaded = useApi<Domain>(path, revision, 6);
  const again = () => setRevision((old) => old + 1);
  return (
    <Await of={loaded}>
      {(domain) => (
        <Place
          title={domain.name}
          actions={
            <>
              <button type="button" onClick={() => doing(ask('POST', `${path}/check`, {}), 'The records were looked up', again)}>
                Check now
              </button>
              <Risky
                label="Remove"
                title={`Remove ${domain.name}?`}
                sentence="Clients do not reach a socket by this name any more."
                onDo={async () => doing(ask('DELETE', path), 'The domain is removed', () => go('/domains'))}
              />
            </>
          }
        >
          <Facts
            of={[
              ['State', <DomainState of={domain} />],
              ['Problem', plain(domain.problem ?? '')],
              ['Verified', domain.verified_at ? <Time at={domain.verified_at} /> : ''],
              ['Socket', domain.socket ? <A to={to('sockets', domain.socket)}>{plain(domain.socket.slice(0, 8))}</A> : 'none'],
            ]}
          />
          <Section title="Records to set at your name service">
            <Table
              label="Records"
              rows={domain.records}
              idOf={({ name: of, type, value }) => `${of} ${type} ${value}`}
              empty="No record is needed."
              columns={[
                { head: 'Name', cell: ({ name: of }) => <code>{plain(of)}</code> },
                { head: 'Type', cell: ({ type }) => type },
                { head: 'Value', cell: ({ value }) => <code>{plain(value)}</code> },
                { head: 'For', cell: ({ purpose }) => plain(purpose) },
                { head: 'Found', cell: ({ found, problem }) => <Lamp is={found ? 'good' : 'warn'}>{problem ? plain(problem) : found ? 'found' : 'not yet'}</Lamp> },
              ]}
            />
          </Section>
          <Ways of={[[curl('POST', `${path}/check`, {}), command('sallyport domain check', ['', domain.name])]]} />
        </Place>
      )}
    </Await>
  );
}
