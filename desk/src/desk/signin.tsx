// Signing in, the first account, and the password once more.
import { useState } from 'preact/hooks';
import { Dialog } from '../parts/dialog';
import { Mark } from '../parts/mark';
import { ask, isPasswordAsked, Refused, session } from './api';
import { Field, Form } from './parts';
import type { Session } from './wire';

const signIn = async (login: { email: string; password: string; code?: string }): Promise<void> => {
  session.value = await ask<Session>('POST', '/session', login);
};

/** Fields that ask for a code only where the account uses codes. */
function usingCode(): [boolean, (login: { email: string; password: string; code?: string }) => Promise<void>] {
  const [isCodeAsked, setCodeAsked] = useState(false);
  const send = async (login: { email: string; password: string; code?: string }) => {
    try {
      await signIn({ email: login.email, password: login.password, ...(login.code ? { code: login.code } : {}) });
    } catch (error) {
      if (error instanceof Refused && error.problem.code === 'code-needed') setCodeAsked(true);
      throw error;
    }
  };
  return [isCodeAsked, send];
}

const Code = () => <Field label="Code of your authenticator" name="code" complete="one-time-code" isFirst hint="A recovery code works too." />;

export function SignIn() {
  const [isCodeAsked, send] = usingCode();
  return (
    <main class="gate">
      <div class="card">
        <Mark />
        <h1>Sign in</h1>
        <p class="soft">The desk of {location.hostname.replace(/^desk\./, '')}</p>
        <Form button="Sign in" onSend={(values) => send({ email: values.email ?? '', password: values.password ?? '', code: values.code })}>
          <Field label="E-mail address" name="email" type="email" complete="username" isNeeded />
          <Field label="Password" name="password" type="password" complete="current-password" isNeeded />
          {isCodeAsked && <Code />}
        </Form>
      </div>
    </main>
  );
}

/** The account that owns a new installation. */
export function FirstAccount({ needsToken }: { needsToken: boolean }) {
  return (
    <main class="gate">
      <div class="card">
        <Mark />
        <h1>Make the first account</h1>
        <p class="soft">This installation is new. The first account owns it.</p>
        <Form
          button="Make the account"
          onSend={async ({ name = '', email = '', password = '', setup_token }) => {
            await ask('POST', '/v1/accounts', { name, email, password, ...(setup_token ? { setup_token } : {}) });
            await signIn({ email, password });
          }}
        >
          <Field label="Your name" name="name" complete="name" isNeeded />
          <Field label="E-mail address" name="email" type="email" complete="username" isNeeded />
          <Field label="Password" name="password" type="password" complete="new-password" isNeeded />
          {needsToken && <Field label="Setup token" name="setup_token" isNeeded hint="It is in the log of the server, and in the file setup-token of its data directory." />}
        </Form>
      </div>
    </main>
  );
}

/** Asks for the password where the login is too old for what somebody wants to do. */
export function PasswordAgain() {
  const [isCodeAsked, send] = usingCode();
  const answer = isPasswordAsked.value;
  const email = session.value?.account?.email;
  if (!answer || !email) return null;
  const close = (isGiven: boolean) => {
    isPasswordAsked.value = null;
    answer(isGiven);
  };
  return (
    <Dialog title="Your password again" class="small" isSteady onClose={() => close(false)}>
      <p class="soft">Your login is older than fifteen minutes.</p>
      <Form
        button="Go on"
        onCancel={() => close(false)}
        onSend={async ({ password = '', code }) => {
          await send({ email, password, code });
          close(true);
        }}
      >
        <Field label="Password" name="password" type="password" complete="current-password" isNeeded isFirst />
        {isCodeAsked && <Code />}
      </Form>
    </Dialog>
  );
}
