// The inspector's API: the key, requests with it, and the stream of events.
import { signal } from '@preact/signals';
import type { Details, Diff, Exchange, Frame, Page, Problem, Replay, State, View } from './wire';

const KEPT = 'sallyport-inspector-key';

/** The key that the program printed; empty when it is missing or was refused. */
export const key = signal('');
/** Whether a key was refused. */
export const isRefused = signal(false);

/** Takes the key out of the address, so that it is in no history, or out of this tab's memory. */
export function takeKey(): void {
  const found = new URLSearchParams(location.hash.slice(1)).get('key');
  if (found) {
    history.replaceState(null, '', location.pathname + location.search);
    useKey(found);
  } else if (!key.value) {
    key.value = sessionStorage.getItem(KEPT) ?? '';
  }
}

export function useKey(text: string): void {
  sessionStorage.setItem(KEPT, text);
  isRefused.value = false;
  key.value = text;
}

/** An answer that is no success. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.detail ?? problem.title ?? `The inspector answered with status ${status}.`);
  }
}

async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${key.value}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Error('The inspector cannot be reached.');
  }
  if (response.ok) return response;
  if (response.status === 401 || response.status === 403) {
    const { problem } = await refusal(response);
    if (response.status === 401) {
      sessionStorage.removeItem(KEPT);
      isRefused.value = key.value !== '';
      key.value = '';
    }
    throw new Refused(response.status, problem);
  }
  throw await refusal(response);
}

async function refusal(response: Response): Promise<Refused> {
  const problem = (await response.json().catch(() => ({}))) as Problem;
  return new Refused(response.status, problem);
}

const json = async <T>(path: string, init?: RequestInit): Promise<T> => (await call(path, init)).json() as Promise<T>;
const query = (values: Record<string, string | number | undefined>): string => {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  return pairs.length ? `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}` : '';
};
const one = (id: number): string => `/api/exchanges/${id}`;

export type Side = 'request' | 'response';

export const api = {
  exchanges: (filter: string, before?: number, limit = 500, signal?: AbortSignal) =>
    json<Page<Exchange>>(`/api/exchanges${query({ filter, before, limit })}`, { signal }),
  details: (id: number, signal?: AbortSignal) => json<Details>(one(id), { signal }),
  view: (id: number, side: Side, signal?: AbortSignal) => json<View>(`${one(id)}/${side}/view`, { signal }),
  body: async (id: number, side: Side, form: 'raw' | 'decoded', signal?: AbortSignal) =>
    (await call(`${one(id)}/${side}/body${query({ form })}`, { signal })).arrayBuffer(),
  frames: (id: number, after: number, signal?: AbortSignal) =>
    json<Page<Frame>>(`${one(id)}/frames${query({ after })}`, { signal }),
  replay: (id: number, changes: Replay) =>
    json<{ id: number }>(`${one(id)}/replay`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(changes),
    }),
  curl: async (id: number) => (await call(`${one(id)}/curl`)).text(),
  har: async (id: number) => (await call(`${one(id)}/har`)).blob(),
  harOfAll: async (filter: string) => (await call(`/api/har${query({ filter })}`)).blob(),
  diff: (a: number, b: number, signal?: AbortSignal) => json<Diff>(`${one(a)}/diff/${b}`, { signal }),
  clear: () => call('/api/exchanges', { method: 'DELETE', headers: { 'content-type': 'application/json' } }),
  state: () => json<State>('/api/state'),
};

export interface Listener {
  exchange(exchange: Exchange): void;
  frame(id: number, frame: Frame): void;
  cleared(): void;
  state(state: State): void;
}

/** Reads the stream of events until it ends or fails. */
export async function listen(listener: Listener, opened: () => void, signal: AbortSignal): Promise<void> {
  const response = await call('/api/stream', { headers: { accept: 'text/event-stream' }, signal });
  opened();
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop()!;
    for (const block of blocks) dispatch(block, listener);
  }
}

function dispatch(block: string, listener: Listener): void {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith('event:')) event = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5));
  }
  if (event === 'cleared') return listener.cleared();
  if (!data.length) return;
  const value = JSON.parse(data.join('\n'));
  if (event === 'exchange') listener.exchange(value);
  else if (event === 'frame') listener.frame(value.exchange, value.frame);
  else if (event === 'state') listener.state(value);
}
