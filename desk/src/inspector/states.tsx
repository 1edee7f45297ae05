// What the page says when there is no list: no key, nothing yet, nothing that matches.
import { useSignal } from '@preact/signals';
import { isRefused, useKey } from '../api/client';
import { Icon } from '../parts/icon';
import { Mark } from '../parts/mark';
import { copy } from '../parts/toast';
import { address } from './filters';
import { filter, link } from './store';

export function KeyMissing() {
  const text = useSignal('');
  return (
    <main class="gate">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          const given = text.value.trim();
          const found = /[#&]key=([^&\s]+)/.exec(given)?.[1] ?? given;
          if (found) useKey(found);
        }}
      >
        <Mark />
        <h1>{isRefused.value ? 'This key does not fit' : 'The key is missing'}</h1>
        <p>
          {isRefused.value
            ? 'Each start of the program makes a new key, so the address of an earlier start does not open the page.'
            : 'What passes through the tunnel is for the person who started it. The page opens with the key of that start.'}
        </p>
        <p>
          Open the address that <code>sallyport connect</code> or <code>sallyport run</code> printed. It looks like this:
        </p>
        <pre class="code">{location.origin}/#key=…</pre>
        <label>
          <span>Or paste the address or the key</span>
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="main" disabled={!text.value.trim()}>
          Open the inspector
        </button>
      </form>
    </main>
  );
}

export function Nothing() {
  const line = `curl ${address() || 'https://…'}/hello`;
  return (
    <section class="empty" aria-label="Requests">
      <div>
        <h2>Waiting for the first request</h2>
        <p class="soft">Each request to the public address shows here as it passes. Try one:</p>
        <div class="try">
          <code>{line}</code>
          <button type="button" class="icon" aria-label="Copy the command" disabled={!address()} onClick={() => copy(line, 'The command')}>
            <Icon name="copy" />
          </button>
        </div>
      </div>
    </section>
  );
}

export function NoMatch() {
  return (
    <section class="empty" aria-label="Requests">
      <div>
        <h2>No request matches</h2>
        <p class="soft">
          New requests are still taken in.{' '}
          <button type="button" class="link" onClick={() => (filter.value = '')}>
            Clear the filter
          </button>
        </p>
      </div>
    </section>
  );
}

export function Banner() {
  if (link.value !== 'lost') return null;
  return (
    <p class="banner" role="alert">
      The program does not answer. The page connects again by itself; what is listed is still here.
    </p>
  );
}
