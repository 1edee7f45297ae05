// What can be done with an exchange.
import { api, Refused } from '../api/client';
import type { Replay } from '../api/wire';
import { plain } from '../parts/format';
import { complain, copy, save, say } from '../parts/toast';
import { asking, choose, compared, exchange, filter, marked } from './store';

/** Methods that a service may be sent twice (RFC 9110 section 9.2.2). */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);

const ask = (id: number, sentence: string, changes: Replay): Promise<boolean> =>
  new Promise((answer) => {
    asking.value = {
      sentence,
      go: async () => answer(await send(id, { ...changes, confirm: true })),
      stop: () => answer(false),
    };
  });

async function send(id: number, changes: Replay): Promise<boolean> {
  try {
    const sent = await api.replay(id, changes);
    say(`Sent again as #${sent.id}`);
    choose(sent.id);
    return true;
  } catch (error) {
    if (error instanceof Refused && error.problem.needs_confirmation && !changes.confirm) {
      return ask(id, error.message, changes);
    }
    complain(error);
    return false;
  }
}

/** Sends an exchange again; asks first when this may act twice. */
export async function replay(id: number, changes: Replay = {}): Promise<boolean> {
  const method = changes.method ?? exchange(id)?.method ?? '';
  if (IDEMPOTENT.has(method)) return send(id, changes);
  return ask(id, `${plain(method)} is not idempotent: the service may act a second time.`, changes);
}

export async function copyCurl(id: number): Promise<void> {
  try {
    await copy(await api.curl(id), 'The curl command');
  } catch (error) {
    complain(error);
  }
}

export async function saveHar(id?: number): Promise<void> {
  try {
    if (id === undefined) save(await api.harOfAll(filter.value.trim()), 'requests.har');
    else save(await api.har(id), `request-${id}.har`);
  } catch (error) {
    complain(error);
  }
}

/** Marks the first of two exchanges, or compares with the marked one. */
export function compare(id: number): void {
  if (marked.value === null || marked.value === id) {
    marked.value = marked.value === id ? null : id;
    return;
  }
  compared.value = [marked.value, id];
  marked.value = null;
}

export async function clear(): Promise<void> {
  try {
    await api.clear();
  } catch (error) {
    complain(error);
  }
}
