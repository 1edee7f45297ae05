// People of the organisation: members with their roles, and invitations.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, chooseOrganisation, memberships, useApi } from './api';
import { Await, delivery, doing, Facts, Field, Form, Once, Place, Risky, Section, Table, Time, Ways } from './parts';
import { A, go, to } from './router';
import type { CreatedInvitation, Invitation, Member, Organisation, Page } from './wire';
import { curl } from './ways';

const ROLES = ['viewer', 'member', 'admin', 'owner'] as const;

export function People() {
  const [revision, setRevision] = useState(0);
  const again = () => setRevision((old) => old + 1);
  const members = useApi<Page<Member>>('/v1/members?limit=100', revision, 12);
  return (
    <Place title="People">
      <Await of={members}>
        {({ items }) => (
          <Table
            label="Members"
            rows={items}
            idOf={({ id }) => id}
            empty="Nobody belongs to this organisation."
            columns={[
              { head: 'Name', cell: ({ name }) => plain(name) },
              { head: 'E-mail address', cell: ({ email }) => <A to={`/audit?identity=${encodeURIComponent(email)}`}>{plain(email)}</A> },
              { head: 'Role', cell: (member) => <Role of={member} onChange={again} /> },
              { head: 'Since', cell: ({ since }) => <Time at={since} /> },
              {
                head: 'Remove',
                isAction: true,
                cell: ({ id, email, founder }) =>
                  founder ? (
                    'founder'
                  ) : (
                    <Risky
                      label="Remove"
                      title={`Remove ${email}?`}
                      sentence="The tokens of this member for the organisation end at once."
                      onDo={async () => doing(ask('DELETE', to('v1', 'members', id)), 'The member is removed', again)}
                    />
                  ),
              },
            ]}
          />
        )}
      </Await>
      <Invitations revision={revision} onChange={again} />
      <OrganisationSection />
      <Ways
        of={[
          [curl('GET', '/v1/members'), 'sallyport member ls'],
          [curl('GET', '/v1/organisation'), 'sallyport organisation show'],
          [curl('POST', '/v1/invitations', { email: 'bob@example.com', role: 'member' }), 'sallyport member add --role member bob@example.com'],
        ]}
      />
    </Place>
  );
}

function Role({ of: { id, email, role, founder }, onChange }: { of: Member; onChange: () => void }) {
  if (founder) return <>{role}</>;
  return (
    <select
      aria-label={`Role of ${plain(email)}`}
      onChange={(event) => doing(ask('PATCH', to('v1', 'members', id), { role: event.currentTarget.value }), 'The role is changed', onChange)}
    >
      {ROLES.map((one) => (
        <option key={one} value={one} selected={one === role}>
          {one}
        </option>
      ))}
    </select>
  );
}

function Invitations({ revision, onChange }: { revision: number; onChange: () => void }) {
  const loaded = useApi<Page<Invitation>>('/v1/invitations?limit=100', revision, 12);
  const [isOpen, setOpen] = useState(false);
  const [made, setMade] = useState<CreatedInvitation | null>(null);
  return (
    <Section title="Invitations" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Invite</button>}>
      {made && (
        <Once
          title="The code of the invitation"
          secret={made.code}
          sentence={delivery('code', made.email, made)}
          onClose={() => setMade(null)}
        />
      )}
      {isOpen && (
        <Form
          button="Invite"
          onCancel={() => setOpen(false)}
          line={({ email, role }) => command('sallyport member add', ['--role', role], ['', email || 'EMAIL'])}
          onSend={async ({ email, role }) => {
            setMade(await ask<CreatedInvitation>('POST', '/v1/invitations', { email, role }));
            setOpen(false);
            onChange();
          }}
        >
          <Field label="E-mail address" name="email" type="email" isNeeded />
          <Field label="Role" name="role" of={ROLES} value="member" />
        </Form>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Invitations"
            rows={items}
            idOf={({ id }) => id}
            empty="No invitation is open. Somebody whom you invite becomes a member with the role that you choose."
            columns={[
              { head: 'E-mail address', cell: ({ email }) => plain(email) },
              { head: 'Role', cell: ({ role }) => role },
              { head: 'Ends', cell: ({ expires_at }) => <Time at={expires_at} /> },
              {
                head: 'Withdraw',
                isAction: true,
                cell: ({ id }) => (
                  <button type="button" onClick={() => doing(ask('DELETE', to('v1', 'invitations', id)), 'The invitation is withdrawn', onChange)}>
                    Withdraw
                  </button>
                ),
              },
            ]}
          />
        )}
      </Await>
    </Section>
  );
}

/** The organisation's name, and the way out of it. */
function OrganisationSection() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const path = '/v1/organisation';
  const loaded = useApi<Organisation>(path, revision, 12);
  const leave = () =>
    doing(ask('POST', `${path}/leave`, {}), 'You have left', () => {
      chooseOrganisation('');
      memberships.value += 1;
      go('/');
    });
  return (
    <Section title="Organisation" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Rename</button>}>
      <Await of={loaded}>
        {(organisation) => (
          <>
            {isOpen ? (
              <Form
                button="Rename"
                onCancel={() => setOpen(false)}
                line={({ name }) => command('sallyport organisation rename', ['', name || 'NAME'])}
                onSend={async ({ name }) => {
                  await ask('PATCH', path, { name });
                  setOpen(false);
                  memberships.value += 1;
                  setRevision((old) => old + 1);
                }}
              >
                <Field label="Name" name="name" value={organisation.name} isNeeded />
              </Form>
            ) : (
              <Facts
                of={[
                  ['Name', plain(organisation.name)],
                  ['Your role', organisation.role],
                ]}
              />
            )}
            {!organisation.own && (
              <div class="bar">
                <Risky label="Leave" title={`Leave ${organisation.name}?`} sentence="Your tokens for this organisation end. What you made stays." onDo={async () => leave()} />
              </div>
            )}
          </>
        )}
      </Await>
    </Section>
  );
}
