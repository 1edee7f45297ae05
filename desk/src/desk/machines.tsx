// Service tokens, with which machines come to sockets that require an identity.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, useApi } from './api';
import { Await, Check, doing, Facts, Field, Form, listOf, Once, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, go, to } from './router';
import type { CreatedServiceToken, Page, ServiceToken, Socket } from './wire';
import { curl } from './ways';

const DAY_MS = 86_400_000;
const LIST = '/v1/service-tokens';

/** Links to the sockets for which a token is valid. */
function For({ ids, sockets }: { ids: string[]; sockets: Socket[] }) {
  if (!ids.length) return <>all sockets</>;
  return (
    <ul class="plain-list">
      {ids.map((id) => (
        <li key={id}>
          <A to={to('sockets', id)}>{plain(sockets.find((socket) => socket.id === id)?.name ?? id.slice(0, 8))}</A>
        </li>
      ))}
    </ul>
  );
}

function NewServiceToken({ sockets, onMade, onCancel }: { sockets: Socket[]; onMade: (made: CreatedServiceToken) => void; onCancel: () => void }) {
  const [isAll, setAll] = useState(false);
  const namesOf = (chosen: string[]) => sockets.filter(({ id }) => chosen.includes(id)).map(({ name }) => name);
  return (
    <Form
      button="Create"
      onCancel={onCancel}
      line={({ name, days, email, all, sockets: chosen }) =>
        command(
          'sallyport service-token create',
          ...(all ? [] : chosen ? namesOf(listOf(chosen)) : ['SOCKET']).map((of): [string, string] => ['--socket', of]),
          ['--expires-in-days', days],
          ['--email', email],
          ['', name || 'NAME'],
        )
      }
      onSend={async ({ name, days, email, all, sockets: chosen }) => {
        if (!all && !chosen) throw new Error('Choose the sockets of the token, or all of them.');
        const expires_at = days ? new Date(Date.now() + Number(days) * DAY_MS).toISOString() : undefined;
        // The API takes an empty list for all sockets.
        onMade(await ask<CreatedServiceToken>('POST', LIST, { name, sockets: all ? [] : listOf(chosen), ...(email ? { email } : {}), ...(expires_at ? { expires_at } : {}) }));
      }}
    >
      <Field label="Name" name="name" isNeeded hint="Policies may name it." />
      <fieldset class="checks">
        <legend>Sockets</legend>
        <Check name="all" label="All, later ones too" onChange={setAll} />
        {!isAll && sockets.map(({ id, name }) => <Check key={id} name="sockets" value={id} label={plain(name)} />)}
      </fieldset>
      <Field label="E-mail address for services" name="email" type="email" hint="Policies do not match it." />
      <Field label="Days until it ends" name="days" type="number" value="90" hint="Empty: it has no end." />
    </Form>
  );
}

export function ServiceTokens() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const [made, setMade] = useState<CreatedServiceToken | null>(null);
  const loaded = useApi<Page<ServiceToken>>(`${LIST}?limit=100`, revision, 12);
  const sockets = useApi<Page<Socket>>('/v1/sockets?limit=100', 0, 12);
  const known = sockets.is === 'there' ? sockets.value.items : [];
  return (
    <Place title="Service tokens" actions={!isOpen && <button type="button" class="main" onClick={() => setOpen(true)}>New service token</button>}>
      {made && (
        <Once title="The secret of the token" secret={made.secret} sentence="Keep it where only your machine reads it. It is shown this once." onClose={() => setMade(null)} />
      )}
      {isOpen && (
        <Section title="New service token">
          <Await of={sockets}>
            {({ items }) => (
              <NewServiceToken
                sockets={items}
                onCancel={() => setOpen(false)}
                onMade={(token) => {
                  setMade(token);
                  setOpen(false);
                  setRevision((old) => old + 1);
                }}
              />
            )}
          </Await>
        </Section>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Service tokens"
            rows={items}
            idOf={({ id }) => id}
            empty="There is no service token. A machine needs one for a socket that requires a login."
            columns={[
              { head: 'Name', cell: ({ id, name }) => <A to={to('service-tokens', id)}>{plain(name)}</A> },
              { head: 'For', cell: ({ sockets: ids }) => <For ids={ids} sockets={known} /> },
              { head: 'Made', cell: ({ created_at }) => <Time at={created_at} /> },
              { head: 'Ends', cell: ({ expires_at }) => (expires_at ? <Time at={expires_at} /> : 'never') },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', LIST), 'sallyport service-token ls']]} />
    </Place>
  );
}

export function OneServiceToken({ id }: { id: string }) {
  const path = to('v1', 'service-tokens', id);
  const loaded = useApi<ServiceToken>(path, 0, 12);
  const sockets = useApi<Page<Socket>>('/v1/sockets?limit=100', 0, 12);
  return (
    <Await of={loaded}>
      {(token) => (
        <Place
          title={token.name}
          actions={
            <Risky
              label="End"
              title={`End ${token.name}?`}
              sentence="Machines with this token are refused, and their connections end."
              onDo={async () => doing(ask('DELETE', path), 'The token has ended', () => go('/service-tokens'))}
            />
          }
        >
          <Facts
            of={[
              ['For', <For ids={token.sockets} sockets={sockets.is === 'there' ? sockets.value.items : []} />],
              ['Id', <code>{token.id}</code>],
              ['E-mail address', plain(token.email ?? '')],
              ['Name for services', plain(token.display_name ?? '')],
              ['Bounds', token.scope && Object.keys(token.scope).length ? <code>{plain(JSON.stringify(token.scope))}</code> : ''],
              ['Certificate until', token.certified_until ? <Time at={token.certified_until} /> : ''],
              ['Ends', token.expires_at ? <Time at={token.expires_at} /> : 'never'],
              ['Made', <Time at={token.created_at} />],
            ]}
          />
          <Ways
            of={[
              [curl('GET', path), command('sallyport service-token show', ['', token.name])],
              [curl('POST', `${path}/certificate`, { csr: 'PEM' }), command('sallyport service-token certificate', ['--csr', 'ci.csr'], ['--cert-out', 'ci.crt'], ['', token.name])],
              [curl('DELETE', path), command('sallyport service-token rm', ['', token.name])],
            ]}
          />
        </Place>
      )}
    </Await>
  );
}
