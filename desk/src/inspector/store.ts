// What the page knows: exchanges, the chosen one, the filter, and the connection to the inspector.
import { computed, effect, signal, untracked } from '@preact/signals';
import { api, key, listen, Refused } from '../api/client';
import type { Exchange, Frame, State } from '../api/wire';
import { complain, say } from '../parts/toast';

/** The page keeps this many exchanges, the newest. */
const MAX_ROWS = 20_000;
const PAGE = 1000;
const FILTER_PAGE = 500;
const STATE_MS = 2000;
const RETRY_MS = [300, 600, 1200, 2500, 5000];

export type Link = 'connecting' | 'open' | 'lost';

export const link = signal<Link>('connecting');
export const state = signal<State | null>(null);
/** Whether the exchanges from before the page was opened are here. */
export const isLoaded = signal(false);
export const filter = signal('');
/** One sentence about a filter that is not understood. */
export const filterProblem = signal('');
export const chosen = signal<number | null>(null);
/** On a narrow screen the details cover the list. */
export const isDetailShown = signal(false);
/** The first of two exchanges to compare. */
export const marked = signal<number | null>(null);
export const compared = signal<[number, number] | null>(null);
export const editing = signal<number | null>(null);
export const asking = signal<{ sentence: string; go: () => Promise<void>; stop: () => void } | null>(null);
export const isHelpShown = signal(false);
export const isClearAsked = signal(false);

/** Whether persons, and more than one edge, are among the exchanges: only then the list has these columns. */
export const hasPeople = signal(false);
export const hasPlaces = signal(false);
let place = '';

const byId = new Map<number, Exchange>();
/** All ids, oldest first. */
let ids: number[] = [];
/** Ids that the filter leaves, oldest first. */
let matches: number[] = [];
const version = signal(0);
const matchVersion = signal(0);

/** The exchanges that the list shows, oldest first. */
export const shown = computed<readonly number[]>(() => {
  if (filter.value.trim()) {
    matchVersion.value;
    return matches;
  }
  version.value;
  return ids;
});

export const total = computed(() => (version.value, ids.length));
export const exchange = (id: number): Exchange | undefined => (version.value, byId.get(id));
/** The newest exchanges, whatever the filter. */
export const newest = (count: number): Exchange[] => ids.slice(-count).map((id) => byId.get(id)!);
export const current = computed(() => (chosen.value === null ? undefined : exchange(chosen.value)));

// Events of one frame of the screen are taken in together.
let waiting: Exchange[] = [];
let isScheduled = false;
function take(exchange: Exchange): void {
  waiting.push(exchange);
  if (isScheduled) return;
  isScheduled = true;
  // A page in the background gets no frames, and goes on by the clock.
  if (document.hidden) setTimeout(flush, 50);
  else requestAnimationFrame(flush);
}

function flush(): void {
  isScheduled = false;
  const events = waiting;
  waiting = [];
  if (!events.length) return;
  merge(events);
  stateSoon();
  if (filter.value.trim()) matchSoon();
}

// What is kept changes with each exchange; it is asked for now and then.
let stateTimer: ReturnType<typeof setTimeout> | undefined;
function stateSoon(): void {
  stateTimer ??= setTimeout(() => {
    stateTimer = undefined;
    if (link.value === 'open') api.state().then((value) => (state.value = value), () => undefined);
  }, STATE_MS);
}

function merge(exchanges: Exchange[]): void {
  let isSorted = true;
  const added: number[] = [];
  for (const exchange of exchanges) {
    if (!byId.has(exchange.id)) {
      const last = added.at(-1) ?? ids.at(-1) ?? -1;
      if (exchange.id < last) isSorted = false;
      added.push(exchange.id);
    }
    byId.set(exchange.id, exchange);
    if (exchange.identity) hasPeople.value = true;
    if (exchange.edge && exchange.edge !== place) {
      if (place) hasPlaces.value = true;
      place = exchange.edge;
    }
  }
  if (added.length) {
    ids = ids.concat(added);
    if (!isSorted) ids.sort((a, b) => a - b);
    if (ids.length > MAX_ROWS) {
      for (const id of ids.slice(0, ids.length - MAX_ROWS)) byId.delete(id);
      ids = ids.slice(-MAX_ROWS);
    }
  }
  version.value += 1;
}

function forget(): void {
  waiting = [];
  byId.clear();
  ids = [];
  matches = [];
  chosen.value = null;
  marked.value = null;
  compared.value = null;
  isDetailShown.value = false;
  version.value += 1;
  matchVersion.value += 1;
}

let matching: AbortController | undefined;
let matchTimer: ReturnType<typeof setTimeout> | undefined;
function matchSoon(): void {
  matchTimer ??= setTimeout(() => {
    matchTimer = undefined;
    void match(false);
  }, 150);
}

/** Asks the inspector which exchanges the filter leaves; it alone knows headers and bodies. */
async function match(isWhole: boolean): Promise<void> {
  const text = filter.value.trim();
  if (isWhole) matching?.abort();
  else if (matching) return matchSoon();
  if (!text) {
    filterProblem.value = '';
    return;
  }
  const mine = new AbortController();
  matching = mine;
  try {
    let found: Exchange[] = [];
    let before: number | undefined;
    do {
      const page = await api.exchanges(text, before, isWhole ? PAGE : FILTER_PAGE, mine.signal);
      found = found.concat(page.items);
      before = page.next ?? undefined;
    } while (isWhole && before !== undefined && found.length < MAX_ROWS);
    const fresh = found.map(({ id }) => id).reverse();
    const from = fresh[0] ?? Infinity;
    matches = isWhole || before === undefined ? fresh : matches.filter((id) => id < from).concat(fresh);
    filterProblem.value = '';
    merge(found);
    matchVersion.value += 1;
  } catch (error) {
    if (mine.signal.aborted) return;
    if (error instanceof Refused && (error.status === 400 || error.status === 422)) {
      filterProblem.value = error.message;
    } else if (link.value === 'open') complain(error);
  } finally {
    if (matching === mine) matching = undefined;
  }
}

effect(() => {
  filter.value;
  if (key.value) untracked(() => void match(true));
});

const frameListeners = new Set<(id: number, frame: Frame) => void>();
export function onFrame(listener: (id: number, frame: Frame) => void): () => void {
  frameListeners.add(listener);
  return () => frameListeners.delete(listener);
}

async function loadAll(signal: AbortSignal): Promise<void> {
  const known = ids;
  const seen = new Set<number>();
  let before: number | undefined;
  do {
    const page = await api.exchanges('', before, PAGE, signal);
    for (const { id } of page.items) seen.add(id);
    merge(page.items.toReversed());
    before = page.next ?? undefined;
    isLoaded.value = true;
  } while (before !== undefined && seen.size < MAX_ROWS);
  // What was dropped while the connection was away is not there any more.
  const gone = known.filter((id) => !seen.has(id));
  if (!gone.length) return;
  for (const id of gone) byId.delete(id);
  ids = ids.filter((id) => byId.has(id));
  version.value += 1;
}

let listening: AbortController | undefined;

/** Keeps a stream of events open as long as there is a key. */
export function connect(): void {
  let last = key.value;
  effect(() => {
    listening?.abort();
    if (!key.value) return;
    // Another key is another start of the program, which counts from 1 again.
    if (key.value !== last) untracked(forget);
    last = key.value;
    listening = new AbortController();
    const { signal } = listening;
    untracked(() => void stay(signal));
  });
}

async function stay(signal: AbortSignal): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    try {
      await listen(
        {
          exchange: take,
          frame: (id, frame) => frameListeners.forEach((listener) => listener(id, frame)),
          cleared: () => {
            forget();
            stateSoon();
          },
          state: (value) => (state.value = value),
        },
        () => {
          const wasLost = link.value === 'lost';
          failures = 0;
          link.value = 'open';
          if (wasLost) say('Connected again');
          loadAll(signal).catch((error) => signal.aborted || complain(error));
          api.state().then((value) => (state.value = value), complain);
          if (filter.value.trim()) void match(true);
        },
        signal,
      );
    } catch {
      // The banner says it.
    }
    if (signal.aborted) return;
    link.value = 'lost';
    await new Promise((go) => setTimeout(go, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
    failures += 1;
  }
}

export function choose(id: number | null, isShown = true): void {
  chosen.value = id;
  if (isShown) isDetailShown.value = id !== null;
}

/** Moves the choice by rows of the list, newest first. */
export function move(by: number): void {
  const list = shown.value;
  if (!list.length) return;
  const at = chosen.value === null ? -1 : list.indexOf(chosen.value);
  const row = at < 0 ? (by > 0 ? -1 : 0) : list.length - 1 - at;
  const next = Math.max(0, Math.min(list.length - 1, row + by));
  choose(list[list.length - 1 - next]!, false);
}
