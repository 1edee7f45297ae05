// The desk: the dashboard of an installation.
import { render } from 'preact';
import { complain, Toasts } from '../parts/toast';
import { takeTheme } from '../parts/theme';
import { readSession, session, startTicking } from './api';
import { Frame } from './frame';
import { followHistory } from './router';
import { FirstAccount, PasswordAgain, SignIn } from './signin';

function App() {
  const known = session.value;
  return (
    <>
      {known && (known.account ? <Frame account={known.account} /> : known.is_new ? <FirstAccount needsToken={known.needs_setup_token} /> : <SignIn />)}
      <PasswordAgain />
      <Toasts />
    </>
  );
}

takeTheme();
followHistory();
startTicking();
readSession().catch(complain);
render(<App />, document.getElementById('app')!);
