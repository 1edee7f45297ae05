// The account: its password, its logins, and the invitations that it has.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { say } from '../parts/toast';
import { ask, memberships, organisation, session, useApi } from './api';
import { Await, doing, Facts, Field, Form, Place, Section, Table, Time, Ways } from './parts';
import { A, to } from './router';
import type { AccountSession, Page, ReceivedInvitation } from './wire';
import { curl } from './ways';

export function AccountPlace() {
  const account = session.value?.account;
  if (!account) return null;
  return (
    <Place title="Account">
      {organisation.value && <p class="soft">This is your own account, whichever organisation you choose at the top.</p>}
      <Facts
        of={[
          ['Name', plain(account.name)],
          ['E-mail address', <A to={`/audit?identity=${encodeURIComponent(account.email)}`}>{plain(account.email)}</A>],
          ['Owns the installation', account.owns_installation ? 'yes' : ''],
          ['This login ends', <Time at={account.ends_at} />],
        ]}
      />
      <Ways of={[[curl('GET', '/v1/account'), 'sallyport account show']]} />
      <Password />
      <Logins />
      <Received />
    </Place>
  );
}

function Password() {
  const [isOpen, setOpen] = useState(false);
  return (
    <Section title="Password" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Change</button>}>
      {isOpen ? (
        <Form
          button="Change"
          onCancel={() => setOpen(false)}
          line={() => 'sallyport account password'}
          onSend={async ({ current_password, new_password }) => {
            await ask('POST', '/v1/account/password', { current_password, new_password });
            setOpen(false);
            say('The password is changed');
          }}
        >
          <Field label="Password now" name="current_password" type="password" complete="current-password" isNeeded />
          <Field label="New password" name="new_password" type="password" complete="new-password" isNeeded />
        </Form>
      ) : (
        <p class="soft none">Another password ends every other login of the account.</p>
      )}
    </Section>
  );
}

function Logins() {
  const [revision, setRevision] = useState(0);
  const path = '/v1/account/sessions';
  const loaded = useApi<Page<AccountSession>>(path, revision, 6);
  const again = () => setRevision((old) => old + 1);
  return (
    <Section
      title="Logins"
      actions={
        <button type="button" onClick={() => doing(ask('POST', `${path}/end-others`, {}), 'The other logins have ended', again)}>
          End all others
        </button>
      }
    >
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Logins"
            rows={items}
            idOf={({ id }) => id}
            empty="There is no login."
            columns={[
              { head: 'Program', cell: ({ client, current }) => `${plain(client ?? 'not known')}${current ? ', this one' : ''}` },
              { head: 'From', cell: ({ address }) => plain(address ?? '') },
              { head: 'Began', cell: ({ created_at }) => <Time at={created_at} /> },
              { head: 'Used', cell: ({ last_used_at }) => <Time at={last_used_at} /> },
              { head: 'Ends', cell: ({ expires_at }) => <Time at={expires_at} /> },
              {
                head: 'End',
                isAction: true,
                cell: ({ id, current }) =>
                  current ? null : (
                    <button type="button" onClick={() => doing(ask('DELETE', to('v1', 'account', 'sessions', id)), 'The login has ended', again)}>
                      End
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', path), 'sallyport account session ls']]} />
    </Section>
  );
}

function Received() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const path = '/v1/account/invitations';
  const loaded = useApi<Page<ReceivedInvitation>>(path, revision, 12);
  const again = () => setRevision((old) => old + 1);
  return (
    <Section title="Invitations" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Accept one</button>}>
      {isOpen && (
        <Form
          button="Accept"
          onCancel={() => setOpen(false)}
          line={({ code }) => command('sallyport invitation accept', ['', code || 'CODE'])}
          onSend={async ({ code = '' }) => {
            await ask('POST', `${path}/accept`, { code: code.trim() });
            setOpen(false);
            say('You are a member. Choose the organisation at the top.');
            memberships.value += 1;
            again();
          }}
        >
          <Field label="Code" name="code" isNeeded hint="The person who invited you has it." />
        </Form>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Invitations"
            rows={items}
            idOf={({ id }) => id}
            empty="You have no invitation. An owner or admin of an organisation can invite your e-mail address."
            columns={[
              { head: 'Organisation', cell: ({ organisation_name }) => plain(organisation_name) },
              { head: 'Role', cell: ({ role }) => role },
              { head: 'Ends', cell: ({ expires_at }) => <Time at={expires_at} /> },
              {
                head: 'Decline',
                isAction: true,
                cell: ({ id }) => (
                  <button type="button" onClick={() => doing(ask('DELETE', to('v1', 'account', 'invitations', id)), 'The invitation is declined', again)}>
                    Decline
                  </button>
                ),
              },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', path), 'sallyport invitation ls']]} />
    </Section>
  );
}
