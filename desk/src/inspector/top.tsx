// The top of the page: the public addresses, the edges, the connection, and what concerns all requests.
import { count, plain, size } from '../parts/format';
import { Icon } from '../parts/icon';
import { Mark } from '../parts/mark';
import { ThemeButton } from '../parts/theme';
import { copy } from '../parts/toast';
import { saveHar } from './actions';
import { isClearAsked, isHelpShown, link, state, total } from './store';

const LINKS = { connecting: 'Connecting', open: 'Live', lost: 'Not connected' };

export function Top() {
  const known = state.value;
  const first = known?.tunnels[0];
  const more = (known?.tunnels.length ?? 0) - 1;
  const up = known?.edges.filter((edge) => edge.is_up).length ?? 0;
  const edges = known?.edges.map((edge) => `${edge.name}: ${edge.is_up ? 'up' : 'down'}`).join('\n');
  return (
    <header class="top">
      <Mark />
      <h1>Inspector</h1>
      {first && (
        <button
          type="button"
          class="address"
          title={known!.tunnels.map(({ url, target }) => (target ? `${url} to ${target}` : url)).join('\n')}
          onClick={() => copy(first.url, 'The address')}
        >
          <span>{plain(first.url.replace(/^https?:\/\//, ''))}</span>
          <Icon name="copy" />
          <span class="unseen">Copy the address</span>
        </button>
      )}
      {more > 0 && <span class="soft">and {more} more</span>}
      <span class="fill" />
      {known && known.edges.length > 0 && (
        <span class={up === known.edges.length ? 'soft wide-only' : 'warn wide-only'} title={edges}>
          {known.edges.length === 1 ? plain(known.edges[0]!.name) : `${up} of ${known.edges.length} edges`}
        </span>
      )}
      {known && (
        <span
          class="soft wide-only"
          title={`At most ${count(known.max_exchanges)} requests and ${size(known.max_bytes)} are kept. ${count(known.dropped ?? 0)} were dropped.`}
        >
          {count(total.value)} requests, {size(known.bytes)}
        </span>
      )}
      <span class={`link-state ${link.value}`} role="status">
        <span class="lamp" />
        <span class="lamp-text">{LINKS[link.value]}</span>
      </span>
      <div class="tools" role="toolbar" aria-label="All requests">
        <button type="button" class="icon" aria-label="Download HAR" title="Download the listed requests as a HAR file" disabled={!total.value} onClick={() => saveHar()}>
          <Icon name="download" />
        </button>
        <button type="button" class="icon" aria-label="Clear all requests" title="Clear all requests" disabled={!total.value} onClick={() => (isClearAsked.value = true)}>
          <Icon name="trash" />
        </button>
        <ThemeButton />
        <button type="button" class="icon wide-only" aria-label="Keys" title="Keys (?)" onClick={() => (isHelpShown.value = true)}>
          <Icon name="help" />
        </button>
      </div>
    </header>
  );
}
