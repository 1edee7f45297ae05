// API tokens, for programs that cannot type a password.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, useApi } from './api';
import { Await, Check, doing, Field, Form, listOf, Once, Place, Risky, Section, Table, Time, Ways } from './parts';
import { to } from './router';
import type { CreatedToken, Page, Token } from './wire';
import { curl } from './ways';

const SCOPES = [
  'sockets:read',
  'sockets:write',
  'tunnels:connect',
  'identity:read',
  'identity:write',
  'audit:read',
  'organisation:read',
  'organisation:write',
  'account:read',
  'account:write',
] as const;
const DAY_MS = 86_400_000;

export function Tokens() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const [made, setMade] = useState<CreatedToken | null>(null);
  const loaded = useApi<Page<Token>>('/v1/tokens?limit=100', revision, 12);
  const again = () => setRevision((old) => old + 1);
  return (
    <Place title="Tokens" actions={!isOpen && <button type="button" class="main" onClick={() => setOpen(true)}>New token</button>}>
      {made && (
        <Once title="The token" secret={made.token} sentence="Keep it where only your program reads it. It is shown this once." onClose={() => setMade(null)} />
      )}
      {isOpen && (
        <Section title="New token">
          <Form
            button="Create"
            onCancel={() => setOpen(false)}
            line={({ name, scopes, days }) => command('sallyport token create', ['--name', name || 'NAME'], ['--scope', listOf(scopes).join(',')], ['--expires-in-days', days])}
            onSend={async ({ name, scopes, days }) => {
              const expires_at = days ? new Date(Date.now() + Number(days) * DAY_MS).toISOString() : undefined;
              setMade(await ask<CreatedToken>('POST', '/v1/tokens', { name, scopes: listOf(scopes), ...(expires_at ? { expires_at } : {}) }));
              setOpen(false);
              again();
            }}
          >
            <Field label="Name" name="name" isNeeded />
            <fieldset class="checks">
              <legend>What it may do</legend>
              {SCOPES.map((scope) => (
                <Check key={scope} name="scopes" value={scope} label={scope} isOn={scope === 'sockets:read'} />
              ))}
            </fieldset>
            <Field label="Days until it ends" name="days" type="number" value="90" hint="Empty: it has no end." />
          </Form>
        </Section>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Tokens"
            rows={items}
            idOf={({ id }) => id}
            empty="You have no token for this organisation. A program needs one to call the API."
            columns={[
              { head: 'Name', cell: ({ name }) => plain(name) },
              { head: 'May', cell: ({ scopes }) => scopes.join(', ') },
              { head: 'Made', cell: ({ created_at }) => <Time at={created_at} /> },
              { head: 'Ends', cell: ({ expires_at }) => (expires_at ? <Time at={expires_at} /> : 'never') },
              {
                head: 'Delete',
                isAction: true,
                cell: ({ id, name }) => (
                  <Risky
                    label="Delete"
                    title="Delete this token?"
                    sentence={`Programs with the token ${name} are refused from now on.`}
                    onDo={async () => doing(ask('DELETE', to('v1', 'tokens', id)), 'The token is deleted', again)}
                  />
                ),
              },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/tokens'), 'sallyport token ls']]} />
    </Place>
  );
}
