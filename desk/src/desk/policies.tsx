// Policies: the list, the editor, and the tester, which is the engine of the edges.
import { useState } from 'preact/hooks';
import { countOf, plain } from '../parts/format';
import { command } from '../parts/shell';
import { say } from '../parts/toast';
import { ask, query, tagOf, useApi } from './api';
import { Await, doing, Facts, Field, Form, Lamp, listOf, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, go, to } from './router';
import { Pages } from './sockets';
import type { Page, Policy, PolicyTest, Socket } from './wire';
import { curl } from './ways';

const EXAMPLE = { allow: [{ name: 'colleagues', who: { email_domains: ['example.com'] } }] };

export function Policies() {
  const [after, setAfter] = useState('');
  const loaded = useApi<Page<Policy>>(`/v1/policies${query({ limit: '50', after })}`);
  return (
    <Place title="Policies" actions={<A to="/policies/new" class="act">New policy</A>}>
      <Await of={loaded}>
        {({ items, next }) => (
          <>
            <Table
              label="Policies"
              rows={items}
              idOf={({ id }) => id}
              empty="There is no policy yet. A policy says who may enter, from where, when, and for what."
              columns={[
                { head: 'Name', cell: ({ id, name }) => <A to={to('policies', id)}>{plain(name)}</A> },
                { head: 'Allows', cell: ({ document }) => countOf(document.allow?.length ?? 0, 'rule') },
                { head: 'Denies', cell: ({ document }) => countOf(document.deny?.length ?? 0, 'rule') },
                { head: 'Applies to', cell: ({ everywhere, sockets }) => (everywhere ? 'all sockets' : countOf(sockets.length, 'socket')) },
                { head: 'Changed', cell: ({ updated_at }) => <Time at={updated_at} /> },
              ]}
            />
            <Pages after={after} next={next} onGo={setAfter} />
          </>
        )}
      </Await>
      <Tester />
      <Ways of={[[curl('GET', '/v1/policies'), 'sallyport policy ls']]} />
    </Place>
  );
}

/** The rules as JSON, with the place of a mistake. */
function documentOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The rules are not JSON: ${error instanceof Error ? error.message : error}`);
  }
}

const Rules = ({ document }: { document: unknown }) => (
  <Field label="Rules" name="document" lines={16} value={JSON.stringify(document, null, 2)} hint="JSON with allow and deny, as docs/policy.md describes it. Deny wins." />
);

export function NewPolicy() {
  return (
    <Place title="New policy">
      <Form
        button="Create"
        onCancel={() => go('/policies')}
        onSend={async ({ name = '', document = '' }) => {
          const made = await ask<Policy>('POST', '/v1/policies', { name, document: documentOf(document) });
          go(to('policies', made.id));
        }}
      >
        <Field label="Name" name="name" isNeeded hint="Lower-case letters, digits and hyphens." />
        <Rules document={EXAMPLE} />
      </Form>
      <Ways of={[[curl('POST', '/v1/policies', { name: 'staff', document: EXAMPLE }), 'sallyport policy create staff --email-domain example.com']]} />
    </Place>
  );
}

export function OnePolicy({ id }: { id: string }) {
  const path = to('v1', 'policies', id);
  const [revision, setRevision] = useState(0);
  const [tag, setTag] = useState<string | null>(null);
  const [isOpen, setOpen] = useState(false);
  const loaded = useApi<Policy>(path, revision);
  const again = () => setRevision((old) => old + 1);
  const edit = () => {
    setTag(tagOf(path));
    setOpen(true);
  };
  return (
    <Await of={loaded}>
      {(policy) => (
        <Place
          title={policy.name}
          actions={
            <Risky
              label="Delete"
              title={`Delete ${policy.name}?`}
              sentence="The server refuses while the policy is attached to a socket."
              onDo={async () => doing(ask('DELETE', path), 'The policy is deleted', () => go('/policies'))}
            />
          }
        >
          <Facts
            of={[
              ['Changed', <Time at={policy.updated_at} />],
              ['Applies to', policy.everywhere ? 'all sockets' : <AttachedSockets of={policy} />],
            ]}
          />
          <div class="bar">
            <button type="button" onClick={() => doing(ask('POST', `${path}/${policy.everywhere ? 'detach' : 'attach'}`, { everywhere: true }), 'The policy is changed', again)}>
              {policy.everywhere ? 'Detach from all sockets' : 'Attach to all sockets'}
            </button>
          </div>
          <Section title="Rules" actions={!isOpen && <button type="button" onClick={edit}>Edit</button>}>
            {isOpen ? (
              <Form
                button="Save"
                onCancel={() => setOpen(false)}
                onSend={async ({ document = '' }) => {
                  await ask('PATCH', path, { document: documentOf(document) }, { tag });
                  setOpen(false);
                  say('The policy is saved: the next request meets it');
                  again();
                }}
              >
                <Rules document={policy.document} />
              </Form>
            ) : (
              <pre class="code wrap" tabIndex={0} aria-label="The rules">
                {JSON.stringify(policy.document, null, 2).split('\n').map(plain).join('\n')}
              </pre>
            )}
          </Section>
          <Tester policy={policy.id} />
          <Ways
            of={[
              [curl('GET', path), command('sallyport policy show', ['', policy.name])],
              [curl('POST', '/v1/policy-test', { policy: policy.id, email: 'ann@example.com' }), command('sallyport policy test --email ann@example.com', ['', policy.name])],
            ]}
          />
        </Place>
      )}
    </Await>
  );
}

function AttachedSockets({ of: { sockets } }: { of: Policy }) {
  const loaded = useApi<Page<Socket>>('/v1/sockets?limit=100', 0, 12);
  if (!sockets.length) return <>no socket</>;
  const nameOf = (id: string) => (loaded.is === 'there' && loaded.value.items.find((one) => one.id === id)?.name) || id.slice(0, 8);
  return (
    <>
      {sockets.map((id, at) => (
        <span key={id}>
          {at > 0 && ', '}
          <A to={to('sockets', id)}>{plain(nameOf(id))}</A>
        </span>
      ))}
    </>
  );
}

/** Asks what would happen to a request. Without a policy, a socket with all its policies is tested. */
function Tester({ policy }: { policy?: string }) {
  const [result, setResult] = useState<PolicyTest | null>(null);
  const request = ({ socket, email, groups, address, method, path }: Record<string, string>) => ({
    ...(policy ? { policy } : { socket }),
    ...(email ? { email } : {}),
    ...(listOf(groups).length ? { groups: listOf(groups) } : {}),
    ...(address ? { address } : {}),
    ...(method ? { method } : {}),
    ...(path ? { path } : {}),
  });
  return (
    <Section title="Test">
      <p class="soft">The server decides with the engine of the edges. No request is sent.</p>
      <Form button="Test" onSend={async (values) => setResult(await ask<PolicyTest>('POST', '/v1/policy-test', request(values)))}>
        {!policy && <Field label="Socket" name="socket" isNeeded hint="Its name, public name or id." />}
        <div class="fields">
          <Field label="E-mail address" name="email" hint="Empty: no login." />
          <Field label="Address of the client" name="address" />
          <Field label="Method" name="method" of={['GET', 'POST', 'PUT', 'PATCH', 'DELETE']} />
          <Field label="Path" name="path" value="/" />
        </div>
        <Field label="Groups" name="groups" lines={2} hint="One in each line." />
      </Form>
      {result && (
        <div role="status" class="tested">
          <p>
            <Lamp is={result.allowed ? 'good' : 'bad'}>{result.allowed ? 'allowed' : 'refused'}</Lamp> by {plain([result.by, result.policy, result.rule].filter(Boolean).join(', '))}
          </p>
          <Table
            label="Rules"
            rows={result.rules}
            idOf={({ policy: of, rule }) => `${of} ${rule}`}
            empty="No rule was asked."
            columns={[
              { head: 'Policy', cell: ({ policy: of }) => plain(of) },
              { head: 'Rule', cell: ({ rule }) => plain(rule) },
              { head: 'Result', cell: ({ unmet }) => (unmet ? `does not match: ${plain(unmet)}` : 'matches') },
            ]}
          />
        </div>
      )}
    </Section>
  );
}
