// Requests to control with the session of this browser, which is a cookie that no script sees.
import { signal } from '@preact/signals';
import { useLoaded, type Loaded } from '../parts/use';
import type { Problem, Session } from './wire';

const KEPT = 'sallyport-desk-organisation';
const REFRESH_MS = 5000;

/** The session; null until it is known. */
export const session = signal<Session | null>(null);
/** The organisation that the desk acts for, by id; empty for the account's own. */
export const organisation = signal(sessionStorage.getItem(KEPT) ?? '');
/** Rises when the organisations of the account may be others. */
export const memberships = signal(0);
/** Rises every few seconds, in a tab that somebody sees. */
export const tick = signal(0);
/** Whether the last request had an answer. */
export const isReachable = signal(true);
export const UNREACHABLE = 'The server cannot be reached.';
/** What waits until the password was given again. */
export const isPasswordAsked = signal<((isGiven: boolean) => void) | null>(null);

export function chooseOrganisation(id: string): void {
  organisation.value = id;
  if (id) sessionStorage.setItem(KEPT, id);
  else sessionStorage.removeItem(KEPT);
}

/** The organisation that a request is for, by id; empty for the account's own, to which all of the account belongs. */
const actingFor = (path: string): string => (/^\/v1\/(account|organisations)(\/|\?|$)/.test(path) ? '' : organisation.value);

/** An answer that is no success. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(sentence(problem.detail || problem.title || `The server answered with status ${status}`));
  }
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

interface Options {
  signal?: AbortSignal;
  /** The tag of what the form was filled from, so that nobody's change is lost. */
  tag?: string | null;
}

/** The tags of the things that were read, by path. */
const tags = new Map<string, string>();
export const tagOf = (path: string): string | null => tags.get(path) ?? null;

async function send(method: string, path: string, body: unknown, { signal: gone, tag }: Options): Promise<Response> {
  const headers = new Headers();
  if (method !== 'GET') headers.set('content-type', 'application/json');
  const of = actingFor(path);
  if (of) headers.set('sallyport-organisation', of);
  if (tag) headers.set('if-match', tag);
  try {
    const response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal: gone ?? null,
      cache: 'no-store',
      credentials: 'same-origin',
      redirect: 'error',
    });
    isReachable.value = true;
    return response;
  } catch (error) {
    if (gone?.aborted) throw error;
    isReachable.value = false;
    throw new Error(UNREACHABLE);
  }
}

/** A request; asks for the password where the login is too old for it. */
export async function ask<T>(method: string, path: string, body?: unknown, options: Options = {}): Promise<T> {
  let response = await send(method, path, body, options);
  let refused = response.ok ? null : await refusal(response);
  if (refused?.problem.code === 'login-too-old') {
    if (!(await new Promise<boolean>((go) => (isPasswordAsked.value = go)))) throw refused;
    response = await send(method, path, body, options);
    refused = response.ok ? null : await refusal(response);
  }
  if (refused) {
    const isOver = refused.status === 401 && path !== '/session' && session.value?.account;
    if (isOver) session.value = { account: null, is_new: false, needs_setup_token: false };
    throw refused;
  }
  const tag = response.headers.get('etag');
  if (method === 'GET' && tag) tags.set(path, tag);
  return (response.status === 204 ? undefined : await response.json().catch(() => undefined)) as T;
}

async function refusal(response: Response): Promise<Refused> {
  const problem = (await response.json().catch(() => ({}))) as Problem;
  return new Refused(response.status, problem);
}

/** What is at a path, read again while somebody looks. `every` is the number of ticks between two readings. */
export function useApi<T>(path: string, revision = 0, every = 1): Loaded<T> {
  const at = every ? Math.floor(tick.value / every) : 0;
  return useLoaded<T>((gone) => ask<T>('GET', path, undefined, { signal: gone }), `${actingFor(path)} ${path}`, `${at} ${revision}`);
}

export async function readSession(): Promise<void> {
  session.value = await ask<Session>('GET', '/session');
}

export async function logOut(): Promise<void> {
  await ask('DELETE', '/session');
  chooseOrganisation('');
  await readSession();
}

/** Counts while the tab is in view, and at once when it comes into view. */
export function startTicking(): void {
  let timer: ReturnType<typeof setInterval> | undefined;
  const look = () => {
    clearInterval(timer);
    if (document.hidden) return;
    tick.value += 1;
    timer = setInterval(() => (tick.value += 1), REFRESH_MS);
  };
  document.addEventListener('visibilitychange', look);
  look();
}

/** A query of what is given. */
export const query = (values: Record<string, string | undefined>): string => {
  const pairs = Object.entries(values).filter((pair): pair is [string, string] => Boolean(pair[1]));
  return pairs.length ? `?${new URLSearchParams(pairs)}` : '';
};
