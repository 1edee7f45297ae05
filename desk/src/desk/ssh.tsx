// SSH: the keys of the account, and the authority that signs certificates of the organisation.
import { useState } from 'preact/hooks';
import { plain } from '../parts/format';
import { command } from '../parts/shell';
import { ask, organisation, useApi } from './api';
import { Await, Check, Copied, doing, Facts, Field, Form, listOf, Place, Risky, Section, Table, Time, Ways } from './parts';
import { to } from './router';
import type { Page, SshAuthority, SshKey } from './wire';
import { curl } from './ways';

const EXTENSIONS = ['permit-pty', 'permit-port-forwarding', 'permit-agent-forwarding', 'permit-X11-forwarding', 'permit-user-rc'] as const;

export function Ssh() {
  return (
    <Place title="SSH">
      {/* Keys are those of the account, in its own organisation. */}
      {!organisation.value && <Keys />}
      <Authority />
    </Place>
  );
}

function Keys() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const loaded = useApi<Page<SshKey>>('/v1/ssh-keys?limit=100', revision, 12);
  const again = () => setRevision((old) => old + 1);
  return (
    <Section title="Your keys" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Add a key</button>}>
      <p class="soft">An ssh client with one of these keys serves your sockets: ssh -R.</p>
      {isOpen && (
        <Form
          button="Add"
          onCancel={() => setOpen(false)}
          line={({ name }) => command('sallyport ssh-key add', ['--name', name], '~/.ssh/id_ed25519.pub')}
          onSend={async ({ name, public_key = '' }) => {
            await ask('POST', '/v1/ssh-keys', { public_key: public_key.trim(), ...(name ? { name } : {}) });
            setOpen(false);
            again();
          }}
        >
          <Field label="Public key" name="public_key" lines={3} isNeeded hint="The line of a file such as ~/.ssh/id_ed25519.pub." />
          <Field label="Name" name="name" hint="Empty: the comment in the key." />
        </Form>
      )}
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Keys"
            rows={items}
            idOf={({ id }) => id}
            empty="You have no key yet. Add the public key of the machine from which you run ssh."
            columns={[
              { head: 'Name', cell: ({ name }) => plain(name) },
              { head: 'Fingerprint', cell: ({ fingerprint }) => <code>{plain(fingerprint)}</code> },
              { head: 'Added', cell: ({ created_at }) => <Time at={created_at} /> },
              {
                head: 'Remove',
                isAction: true,
                cell: ({ id, name }) => (
                  <Risky
                    label="Remove"
                    title={`Remove the key ${name}?`}
                    sentence="The server refuses ssh clients with this key."
                    onDo={async () => doing(ask('DELETE', to('v1', 'ssh-keys', id)), 'The key is removed', again)}
                  />
                ),
              },
            ]}
          />
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/ssh-keys'), 'sallyport ssh-key ls']]} />
    </Section>
  );
}

/** The command that gives certificates these settings. */
const lineOf = ({ extensions, force_command }: Record<string, string>): string =>
  command(
    'sallyport ssh-ca edit',
    ...(listOf(extensions).length ? [['--extension', listOf(extensions).join(',')] as [string, string]] : ['--no-extensions']),
    ...(force_command ? [['--force-command', force_command] as [string, string]] : ['--no-force-command']),
  );

function Authority() {
  const [revision, setRevision] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const loaded = useApi<SshAuthority>('/v1/ssh-authority', revision, 12);
  return (
    <Section title="Certificates" actions={!isOpen && <button type="button" onClick={() => setOpen(true)}>Edit</button>}>
      <p class="soft">Hosts that trust this key admit persons with a certificate, for as long as it lives.</p>
      <Await of={loaded}>
        {(authority) => (
          <>
            <Copied text={authority.public_key} what="The public key of the authority" />
            {isOpen ? (
              <Form
                button="Save"
                onCancel={() => setOpen(false)}
                line={lineOf}
                onSend={async ({ extensions, force_command }) => {
                  await ask('PATCH', '/v1/ssh-authority', { extensions: listOf(extensions), force_command: force_command || null });
                  setOpen(false);
                  setRevision((old) => old + 1);
                }}
              >
                <fieldset class="checks">
                  <legend>What certificates allow</legend>
                  {EXTENSIONS.map((one) => (
                    <Check key={one} name="extensions" value={one} label={one} isOn={authority.extensions.includes(one)} />
                  ))}
                </fieldset>
                <Field label="The one command" name="force_command" value={authority.force_command ?? ''} hint="Empty: any command." />
              </Form>
            ) : (
              <Facts
                of={[
                  ['Allow', authority.extensions.map(plain).join(', ') || 'nothing more'],
                  ['The one command', authority.force_command ? <code>{plain(authority.force_command)}</code> : 'any'],
                ]}
              />
            )}
          </>
        )}
      </Await>
      <Ways of={[[curl('GET', '/v1/ssh-authority'), 'sallyport ssh-ca show']]} />
    </Section>
  );
}
