// Edit and replay: the request as it can be changed before it is sent again.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { api } from '../api/client';
import type { Details, Header, Replay } from '../api/wire';
import { plain, size, toBase64 } from '../parts/format';
import { Dialog } from '../parts/dialog';
import { Icon } from '../parts/icon';
import { JsonError, parse } from '../parts/json';
import { useLoaded } from '../parts/use';
import { replay } from './actions';
import { editing } from './store';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

interface Draft {
  all: Details;
  /** Absent when the body is not text, or was not kept whole: it then goes as it is. */
  body: string | undefined;
}

async function draft(id: number, signal: AbortSignal): Promise<Draft> {
  const all = await api.details(id, signal);
  if (all.request.bytes === 0) return { all, body: '' };
  if (all.request.is_truncated || all.request.content_encoding) return { all, body: undefined };
  const bytes = await api.body(id, 'request', 'raw', signal);
  try {
    return { all, body: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { all, body: undefined };
  }
}

function problems(method: string, path: string, headers: readonly Header[]): string {
  if (!TOKEN.test(method)) return 'The method is no word of HTTP.';
  if (!path.startsWith('/') && path !== '*') return 'The path starts with a slash.';
  if (/[^!-~]/.test(path)) return 'The path has no spaces and no letters beyond ASCII: escape them.';
  const bad = headers.find(({ name }) => !TOKEN.test(name));
  if (bad) return `"${bad.name}" is no name of a header.`;
  const broken = headers.find(({ value }) => /[\u0000-\u0008\u000a-\u001f\u007f]/.test(value));
  return broken ? `The value of ${broken.name} has control characters.` : '';
}

function Form({ id, from }: { id: number; from: Draft }) {
  const request = from.all.request;
  const method = useSignal(from.all.method);
  const path = useSignal(from.all.path);
  const headers = useSignal<Header[]>(request.headers.map((header) => ({ ...header })));
  const body = useSignal(from.body ?? '');
  const sentence = useSignal('');
  const isSending = useSignal(false);
  const rows = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []);
  const isJson = request.headers.some(({ name, value }) => name.toLowerCase() === 'content-type' && /json/i.test(value));
  let remark = '';
  if (isJson && body.value) {
    try {
      parse(body.value);
    } catch (error) {
      if (error instanceof JsonError) remark = `This is no valid JSON. ${error.message}.`;
    }
  }
  const set = (at: number, change: Partial<Header>) => {
    headers.value = headers.value.map((header, row) => (row === at ? { ...header, ...change } : header));
  };
  const send = async (event: Event) => {
    event.preventDefault();
    const named = headers.value.filter(({ name, value }) => name.trim() || value.trim()).map(({ name, value }) => ({ name: name.trim(), value }));
    sentence.value = problems(method.value, path.value, named);
    if (sentence.value) return;
    const changes: Replay = {};
    if (method.value !== from.all.method) changes.method = method.value;
    if (path.value !== from.all.path) changes.path = path.value;
    const isSame =
      named.length === request.headers.length &&
      named.every(({ name, value }, at) => name === request.headers[at]!.name && value === request.headers[at]!.value);
    if (!isSame) changes.headers = named;
    if (from.body !== undefined && body.value !== from.body) changes.body_base64 = toBase64(new TextEncoder().encode(body.value));
    isSending.value = true;
    const isSent = await replay(id, changes);
    isSending.value = false;
    if (isSent) editing.value = null;
  };
  return (
    <form class="editor" onSubmit={send}>
      <div class="first-line">
        <label>
          <span>Method</span>
          <input list="methods" value={method.value} size={9} onInput={(event) => (method.value = event.currentTarget.value)} />
        </label>
        <label class="wide">
          <span>Path and query</span>
          <input ref={first} value={path.value} spellcheck={false} onInput={(event) => (path.value = event.currentTarget.value)} />
        </label>
        <datalist id="methods">
          {METHODS.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </div>
      <fieldset>
        <legend>Headers</legend>
        <div ref={rows} class="header-rows">
          {headers.value.map(({ name, value }, at) => (
            <div key={at} class="header-row">
              <input aria-label={`Name of header ${at + 1}`} value={name} spellcheck={false} onInput={(event) => set(at, { name: event.currentTarget.value })} />
              <input aria-label={`Value of header ${at + 1}`} value={value} spellcheck={false} onInput={(event) => set(at, { value: event.currentTarget.value })} />
              <button type="button" class="icon" aria-label={`Remove header ${at + 1}`} onClick={() => (headers.value = headers.value.filter((_, row) => row !== at))}>
                <Icon name="close" />
              </button>
            </div>
          ))}
        </div>
        <button
          type="button"
          class="link"
          onClick={() => {
            headers.value = [...headers.value, { name: '', value: '' }];
            setTimeout(() => rows.current?.querySelector<HTMLInputElement>('.header-row:last-child input')?.focus());
          }}
        >
          Add a header
        </button>
      </fieldset>
      {request.redacted.length > 0 && (
        <p class="note-line">
          Secrets were taken out before the request was kept: {plain(request.redacted.join(', '))}. They are not sent, unless
          you write them here again.
        </p>
      )}
      {from.body === undefined ? (
        <p class="note-line">
          {request.is_truncated
            ? `Only ${size(request.kept)} of the body were kept, so it cannot be sent again.`
            : `The body (${size(request.bytes)}) is no plain text, and goes as it is.`}
        </p>
      ) : (
        <label class="body-field">
          <span>Body</span>
          <textarea rows={10} spellcheck={false} value={body.value} onInput={(event) => (body.value = event.currentTarget.value)} />
        </label>
      )}
      <p class={sentence.value ? 'note-line bad' : 'note-line'} role="alert" hidden={!sentence.value && !remark}>
        {sentence.value || remark}
      </p>
      <div class="dialog-foot">
        <button type="button" onClick={() => (editing.value = null)}>
          Cancel
        </button>
        <button type="submit" class="main" disabled={isSending.value}>
          <Icon name="replay" /> Send
        </button>
      </div>
    </form>
  );
}

export function Editor({ id }: { id: number }) {
  const loaded = useLoaded((signal) => draft(id, signal), id);
  return (
    <Dialog title={`Edit request #${id} and send it again`} class="large" isSteady onClose={() => (editing.value = null)}>
      {loaded.failure && <p class="note-line bad">{loaded.failure}</p>}
      {loaded.is === 'there' && <Form id={id} from={loaded.value} />}
    </Dialog>
  );
}
