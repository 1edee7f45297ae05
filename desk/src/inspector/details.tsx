// One exchange: what can be done with it, its two messages, frames, timing and route.
import { signal } from '@preact/signals';
import { api, type Side } from '../api/client';
import type { Details, Exchange, Message } from '../api/wire';
import { duration, moment, plain, size } from '../parts/format';
import { Icon } from '../parts/icon';
import { Tabs } from '../parts/tabs';
import { copy } from '../parts/toast';
import { useLoaded } from '../parts/use';
import { compare, copyCurl, replay, saveHar } from './actions';
import { Body, Pairs } from './body';
import { quoted } from './filters';
import { Frames } from './frames';
import { Status } from './status';
import { choose, compared, current, editing, exchange, filter, isDetailShown, marked } from './store';

type Tab = 'request' | 'response' | 'frames' | 'about';
const tab = signal<Tab>('request');
export const showTab = (id: Tab): void => {
  tab.value = id;
};

function query(path: string): [string, string][] {
  const at = path.indexOf('?');
  return at < 0 ? [] : [...new URLSearchParams(path.slice(at + 1))];
}

function Headers({ of, label }: { of: Message; label: string }) {
  const fields = [...of.headers, ...(of.trailers ?? [])];
  const isTrailer = (at: number) => at >= of.headers.length;
  if (!fields.length) return <p class="soft none">No headers</p>;
  return (
    <table class="pairs headers" aria-label={label}>
      <tbody>
        {fields.slice(0, MAX_HEADERS).map(({ name, value }, at) => (
          <tr key={at}>
            <th scope="row">
              <button
                type="button"
                class="plain-link"
                title="Filter by this header"
                onClick={() => (filter.value = `header:${name}=${quoted(value)}`)}
              >
                {plain(name)}
              </button>
              {isTrailer(at) && <span class="soft"> trailer</span>}
            </th>
            <td class={/^\[?redacted\]?$/i.test(value) ? 'redacted' : ''}>{plain(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
const MAX_HEADERS = 1000;

function Half({ id, side, message, path, revision }: { id: number; side: Side; message: Message; path: string; revision: unknown }) {
  const pairs = side === 'request' ? query(path) : [];
  const count = message.headers.length;
  if (side === 'request' && !message.version && !count) {
    return <p class="note-line">Only the record of the edge is here: the request did not come to this machine.</p>;
  }
  return (
    <>
      {pairs.length > 0 && (
        <details class="fold-part" open>
          <summary>
            Query <span class="note">{pairs.length}</span>
          </summary>
          <Pairs of={pairs} label="Query" />
        </details>
      )}
      <details class="fold-part" open>
        <summary>
          Headers <span class="note">{count}</span>
        </summary>
        <Headers of={message} label={`Headers of the ${side}`} />
        {count > MAX_HEADERS && <p class="note-line">{count - MAX_HEADERS} more headers are in the HAR file.</p>}
      </details>
      <Body id={id} side={side} message={message} revision={revision} />
    </>
  );
}

function Timing({ all }: { all: Details }) {
  const marks = all.timing ?? [];
  const end = Math.max(all.duration_ms ?? 0, ...marks.map(({ at_ms }) => at_ms), 0.001);
  return (
    <section aria-label="Timing">
      <h3>Timing</h3>
      {!marks.length && <p class="soft none">{all.duration_ms == null ? 'It still runs' : duration(all.duration_ms)}</p>}
      <table class="timing" aria-label="Moments since the request came">
        <tbody>
          {marks.map(({ name, at_ms }, at) => {
            const from = at ? marks[at - 1]!.at_ms : 0;
            return (
              <tr key={name}>
                <th scope="row">{plain(name)}</th>
                <td class="bar-cell">
                  <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
                    <rect class="track" x="0" y="3" width="100" height="2" />
                    <rect class="span" x={(from / end) * 100} y="1" width={Math.max(0.6, ((at_ms - from) / end) * 100)} height="6" />
                  </svg>
                </td>
                <td class="number">{duration(at_ms)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function About({ all }: { all: Details }) {
  const facts: [string, string][] = [
    ['Began', moment(all.began)],
    ['Duration', all.duration_ms == null ? 'it still runs' : duration(all.duration_ms)],
    ['Person', all.identity ?? 'not asked for'],
    ['Rule', all.rule ?? ''],
    ['Client', all.client ?? ''],
    ['Edge', all.edge ?? ''],
    ['Socket', all.socket_name ?? ''],
    ['Host', all.host ?? ''],
    ['Protocol', [all.request.version, all.protocol === 'http' ? '' : all.protocol].filter(Boolean).join(', ')],
    ['Request', size(all.request_bytes)],
    ['Response', size(all.response_bytes)],
    ...(all.facts ?? []).map(({ name, value }): [string, string] => [name, value]),
  ];
  const redacted = [...(all.request.redacted ?? []), ...(all.response?.redacted ?? [])];
  return (
    <>
      <Timing all={all} />
      <section aria-label="Route">
        <h3>Route</h3>
        <Pairs of={facts.filter(([, value]) => value)} label="Route" />
        {redacted.length > 0 && <p class="note-line">Taken out before it was kept: {plain(redacted.join(', '))}.</p>}
      </section>
    </>
  );
}

const WHY_NOT = 'A WebSocket cannot be sent again.';

function Actions({ one }: { one: Exchange }) {
  const isMarked = marked.value === one.id;
  const isSocket = one.protocol === 'websocket';
  return (
    <div class="actions" role="toolbar" aria-label="Actions">
      <button type="button" class="main" disabled={isSocket} onClick={() => replay(one.id)} title={isSocket ? WHY_NOT : 'Send it again (r)'}>
        <Icon name="replay" /> Replay
      </button>
      <button type="button" disabled={isSocket} onClick={() => (editing.value = one.id)} title={isSocket ? WHY_NOT : 'Change it and send it (e)'}>
        <Icon name="edit" /> Edit
      </button>
      <button type="button" onClick={() => copyCurl(one.id)} title="Copy it as a curl command (c)">
        <Icon name="copy" /> curl
      </button>
      <button type="button" aria-pressed={isMarked} onClick={() => compare(one.id)} title="Compare it with another (d)">
        <Icon name="compare" /> {marked.value !== null && !isMarked ? `Compare with #${marked.value}` : 'Compare'}
      </button>
      <button type="button" onClick={() => saveHar(one.id)} title="Save it as a HAR file">
        <Icon name="download" /> <span class="spare">HAR</span>
      </button>
    </div>
  );
}

function Lines({ one }: { one: Exchange }) {
  const source = one.replay_of;
  return (
    <>
      {one.error && <p class="note-line bad">{plain(one.error)}</p>}
      {source != null && (
        <p class="note-line">
          This is request{' '}
          <button type="button" class="link" onClick={() => choose(source)} disabled={!exchange(source)}>
            #{source}
          </button>
          , sent again.{' '}
          <button type="button" class="link" onClick={() => (compared.value = [source, one.id])}>
            Compare both
          </button>
        </p>
      )}
      {marked.value !== null && (
        <p class="note-line">
          {marked.value === one.id ? 'Choose another request, and compare with this one.' : `Request #${marked.value} is marked.`}{' '}
          <button type="button" class="link" onClick={() => (marked.value = null)}>
            Stop comparing
          </button>
        </p>
      )}
    </>
  );
}

export function DetailsPane() {
  const one = current.value;
  const isThere = one !== undefined;
  const revision = one && `${one.state} ${one.status} ${one.state === 'open' ? one.response_bytes > 0 : ''}`;
  const loaded = useLoaded<Details | null>((signal) => (one ? api.details(one.id, signal) : Promise.resolve(null)), one?.id, revision);
  if (!isThere) {
    return (
      <section class="details nothing" aria-label="Details">
        <p class="soft">
          Choose a request. <kbd>j</kbd> and <kbd>k</kbd> move, <kbd>?</kbd> shows all keys.
        </p>
      </section>
    );
  }
  const hasFrames = one.protocol !== 'http';
  const at: Tab = tab.value === 'frames' && !hasFrames ? 'request' : tab.value;
  const tabs: { id: Tab; label: string; note?: string }[] = [
    { id: 'request', label: 'Request' },
    { id: 'response', label: 'Response', note: one.status ? String(one.status) : undefined },
    ...(hasFrames ? [{ id: 'frames' as const, label: 'Messages', note: one.frames ? String(one.frames) : undefined }] : []),
    { id: 'about', label: 'Timing and route' },
  ];
  return (
    <section id="details" class="details" aria-label={`Request ${one.id}`} tabIndex={-1}>
      <header class="details-head">
        <div class="line">
          <button type="button" class="icon only-narrow" aria-label="Back to the list" onClick={() => (isDetailShown.value = false)}>
            <Icon name="back" />
          </button>
          <span class="method">{plain(one.method)}</span>
          <Status one={one} />
          <span class="soft">
            #{one.id}, {moment(one.began)}
            {one.duration_ms != null && `, ${duration(one.duration_ms)}`}
          </span>
        </div>
        <h2 class="path">
          {plain(one.path)}
          <button
            type="button"
            class="icon"
            aria-label="Copy the address"
            title="Copy the address"
            onClick={() => copy(one.host ? `https://${one.host}${one.path}` : one.path, 'The address')}
          >
            <Icon name="copy" />
          </button>
        </h2>
        <Lines one={one} />
        <Actions one={one} />
        <Tabs label="Parts of the exchange" tabs={tabs} at={at} panel="panel" onChange={(id) => (tab.value = id)} />
      </header>
      <div id="panel" class="panel" role="tabpanel" aria-labelledby={`tab-${at}`} tabIndex={0}>
        {loaded.failure && <p class="note-line bad">{loaded.failure}</p>}
        {loaded.is === 'there' && loaded.value && <Panel at={at} all={loaded.value} one={one} revision={revision} />}
      </div>
    </section>
  );
}

function Panel({ at, all, one, revision }: { at: Tab; all: Details; one: Exchange; revision: unknown }) {
  if (at === 'frames') return <Frames id={one.id} />;
  if (at === 'about') return <About all={all} />;
  if (at === 'request') return <Half id={one.id} side="request" message={all.request} path={all.path} revision={revision} />;
  if (!all.response) return <p class="soft none">{one.state === 'open' ? 'No response yet' : 'There was no response'}</p>;
  return <Half id={one.id} side="response" message={all.response} path={all.path} revision={revision} />;
}
