// Identity providers: the list, a new one, and one provider with its check.
import { useState } from 'preact/hooks';
import { count, plain } from '../parts/format';
import { command } from '../parts/shell';
import { complain } from '../parts/toast';
import { ask, useApi } from './api';
import { Await, Check, doing, Facts, Field, Form, Lamp, listOf, Place, Risky, Section, Table, Time, Ways } from './parts';
import { Persons } from './persons';
import { A, go, to } from './router';
import type { Page, Provider, ProviderFound } from './wire';
import { curl } from './ways';

const KINDS = ['oidc', 'google', 'microsoft', 'github', 'facebook', 'local'] as const;

export function Providers() {
  const loaded = useApi<Page<Provider>>('/v1/providers?limit=100', 0, 12);
  return (
    <Place title="Providers" actions={<A to="/providers/new" class="act">New provider</A>}>
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Providers"
            rows={items}
            idOf={({ name }) => name}
            empty="There is no provider yet. Sockets that require a login need one."
            columns={[
              { head: 'Name', cell: ({ name }) => <A to={to('providers', name)}>{plain(name)}</A> },
              { head: 'Kind', cell: ({ kind }) => kind },
              { head: 'Issuer', cell: ({ issuer }) => plain(issuer ?? '') },
              { head: 'Made', cell: ({ created_at }) => <Time at={created_at} /> },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/providers'), 'sallyport provider ls']]} />
    </Place>
  );
}

const textFields = ['client_id', 'client_secret', 'issuer', 'tenant', 'groups_claim'] as const;

/** The body of a new provider: fields that are empty are left out. */
const bodyOf = (values: Record<string, string>) => ({
  name: values.name,
  kind: values.kind,
  ...Object.fromEntries(textFields.flatMap((name) => (values[name] ? [[name, values[name]]] : []))),
  ...(listOf(values.scopes).length ? { scopes: listOf(values.scopes) } : {}),
  ...(values.trust_email ? { trust_email: true } : {}),
  ...(values.require_totp ? { require_totp: true } : {}),
});

const lineOf = (values: Record<string, string>): string =>
  command(
    'sallyport provider add',
    ['--kind', values.kind],
    ['--client-id', values.client_id],
    ['--client-secret-file', values.client_secret && 'secret.txt'],
    ['--issuer', values.issuer],
    ['--tenant', values.tenant],
    ['--groups-claim', values.groups_claim],
    ['--scope', listOf(values.scopes).join(',')],
    ...(values.trust_email ? ['--trust-email'] : []),
    ...(values.require_totp ? ['--require-totp'] : []),
    ['', values.name || 'NAME'],
  );

export function NewProvider() {
  return (
    <Place title="New provider">
      <Form
        button="Create"
        onCancel={() => go('/providers')}
        line={lineOf}
        onSend={async (values) => {
          const made = await ask<Provider>('POST', '/v1/providers', bodyOf(values));
          go(to('providers', made.name));
        }}
      >
        <Field label="Name" name="name" isNeeded hint="Lower-case letters, digits and hyphens." />
        <Field label="Kind" name="kind" of={KINDS} value="oidc" hint="local: persons log in with a password that this installation keeps." />
        <Field label="Client id" name="client_id" hint="The provider gives it; local has none." />
        <Field label="Client secret" name="client_secret" type="password" complete="new-password" />
        <Field label="Issuer" name="issuer" hint="For oidc, the address that its tokens name in iss." />
        <Field label="Tenant" name="tenant" hint="For microsoft." />
        <Field label="Claim of the groups" name="groups_claim" hint="A claim, or a pointer such as /realm_access/roles." />
        <Field label="More scopes" name="scopes" lines={2} hint="One in each line, beside openid, email and profile." />
        <fieldset class="checks">
          <legend>Options</legend>
          <Check name="trust_email" label="E-mail addresses count unverified" />
          <Check name="require_totp" label="local: codes beside passwords" />
        </fieldset>
      </Form>
      <Ways of={[[curl('POST', '/v1/providers', { name: 'work', kind: 'google', client_id: 'ID', client_secret: 'SECRET' }), lineOf({ name: 'work', kind: 'google', client_id: 'ID', client_secret: 'SECRET' })]]} />
    </Place>
  );
}

/** What a check of the provider found. */
function Tested({ path }: { path: string }) {
  const [found, setFound] = useState<ProviderFound | null>(null);
  return (
    <Section
      title="Check"
      actions={
        <button type="button" onClick={() => ask<ProviderFound>('POST', `${path}/test`).then(setFound, complain)}>
          Test
        </button>
      }
    >
      <div role="status">
        {found ? (
          <Facts
            of={[
              ['Result', <Lamp is={found.works ? 'good' : 'bad'}>{found.works ? 'works' : 'fails'}</Lamp>],
              ['Detail', plain(found.detail)],
              ['Login page', plain(found.authorization_endpoint ?? '')],
              ['Keys', found.keys == null ? '' : count(found.keys)],
            ]}
          />
        ) : (
          <p class="soft none">The server asks the provider for its settings and keys.</p>
        )}
      </div>
    </Section>
  );
}

export function OneProvider({ name }: { name: string }) {
  const path = to('v1', 'providers', name);
  const loaded = useApi<Provider>(path, 0, 12);
  return (
    <Await of={loaded}>
      {(provider) => (
        <Place
          title={provider.name}
          actions={
            <Risky
              label="Remove"
              title={`Remove ${provider.name}?`}
              sentence="All logins through this provider end. The server refuses while a socket names the provider."
              onDo={async () => doing(ask('DELETE', path), 'The provider is removed', () => go('/providers'))}
            />
          }
        >
          <Facts
            of={[
              ['Kind', provider.kind],
              ['Issuer', plain(provider.issuer ?? '')],
              ['Tenant', plain(provider.tenant ?? '')],
              ['Client id', plain(provider.client_id)],
              ['Secret', provider.kind === 'local' ? '' : provider.has_secret ? 'kept' : 'missing'],
              ['Scopes', provider.scopes.map(plain).join(', ')],
              ['Claim of the groups', plain(provider.groups_claim ?? '')],
              ['E-mail addresses', provider.trust_email ? 'count unverified' : ''],
              ['Codes', provider.require_totp ? 'required' : ''],
              ['Redirect address', provider.kind === 'local' ? '' : <code>{plain(provider.redirect_uri)}</code>],
              ['Made', <Time at={provider.created_at} />],
            ]}
          />
          <Tested path={path} />
          <Ways
            of={[
              [curl('GET', path), command('sallyport provider show', ['', provider.name])],
              [curl('POST', `${path}/test`), command('sallyport provider test', ['', provider.name])],
              [curl('DELETE', path), command('sallyport provider rm', ['', provider.name])],
            ]}
          />
          {provider.kind === 'local' && <Persons />}
        </Place>
      )}
    </Await>
  );
}
