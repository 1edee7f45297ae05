// Persons who log in to sockets with a password of this installation.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, useApi } from './api';
import { Await, delivery, doing, Field, Form, Lamp, listOf, Once, Risky, Section, Table, Time, Ways } from './parts';
import { A, to } from './router';
import type { InvitedPerson, LocalPerson, Page } from './wire';
import { curl } from './ways';

export function Persons() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const [link, setLink] = useState<InvitedPerson | null>(null);
  const loaded = useApi<Page<LocalPerson>>('/v1/persons?limit=100', revision, 12);
  const again = () => setRevision((old) => old + 1);
  const reset = (id: string) =>
    doing(
      ask<InvitedPerson>('POST', `${to('v1', 'persons', id)}/reset`, {}).then(setLink),
      'The password is removed',
      again,
    );
  return (
    <Section title="Persons" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Add a person</button>}>
      {link && (
        <Once
          title="The link to set a password"
          secret={link.link}
          sentence={delivery('link', link.person.email, link)}
          onClose={() => setLink(null)}
        />
      )}
      {isOpen && (
        <Form
          button="Add"
          onCancel={() => setOpen(false)}
          line={({ email, name, groups }) => command('sallyport person add', ['--name', name], ...listOf(groups).map((group): [string, string] => ['--group', group]), ['', email || 'EMAIL'])}
          onSend={async ({ email, name, groups }) => {
            setLink(await ask<InvitedPerson>('POST', '/v1/persons', { email, ...(name ? { name } : {}), groups: listOf(groups) }));
            setOpen(false);
            again();
          }}
        >
          <Field label="E-mail address" name="email" type="email" isNeeded />
          <Field label="Name" name="name" />
          <Field label="Groups" name="groups" lines={2} hint="One in each line." />
        </Form>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Persons"
            rows={items}
            idOf={({ id }) => id}
            empty="Nobody logs in with a password of this installation yet. A person whom you add gets a link to set one."
            columns={[
              { head: 'E-mail address', cell: ({ email }) => <A to={`/audit?identity=${encodeURIComponent(email)}`}>{plain(email)}</A> },
              { head: 'Groups', cell: ({ groups }) => (groups ?? []).map(plain).join(', ') },
              { head: 'State', cell: ({ state }) => <Lamp is={state === 'active' ? 'good' : 'off'}>{state}</Lamp> },
              { head: 'Last login', cell: ({ last_login_at }) => <Time at={last_login_at} /> },
              {
                head: 'Reset',
                isAction: true,
                cell: ({ id, email }) => (
                  <Risky label="Reset" title={`Reset the password of ${email}?`} sentence="The password is removed, and the server makes a link to set another one." onDo={async () => reset(id)} />
                ),
              },
              {
                head: 'Remove',
                isAction: true,
                cell: ({ id, email }) => (
                  <Risky
                    label="Remove"
                    title={`Remove ${email}?`}
                    sentence="The logins and connections of this person end."
                    onDo={async () => doing(ask('DELETE', to('v1', 'persons', id)), 'The person is removed', again)}
                  />
                ),
              },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/persons'), 'sallyport person ls']]} />
    </Section>
  );
}
