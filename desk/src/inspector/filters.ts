// What can be written into the filter, and the filters that the reader keeps.
import { signal } from '@preact/signals';
import type { Exchange } from '../api/wire';
import { newest, state } from './store';

const KEPT = 'sallyport-inspector-filters';
const MAX_KEPT = 50;

export const KEYS: readonly [string, string, string][] = [
  ['path:', 'part of the path', 'path:/webhooks'],
  ['status:', 'a status or a class', 'status:5xx'],
  ['method:', 'the method', 'method:POST'],
  ['header:', 'a header, with its value or without', 'header:content-type=json'],
  ['body:', 'text in a body or a message', 'body:invoice'],
  ['person:', 'who was let in', 'person:alice@'],
  ['duration:', 'longer or shorter than', 'duration:>100ms'],
  ['size:', 'larger or smaller than', 'size:>10kb'],
  ['state:', 'how it ended', 'state:failed'],
  ['protocol:', 'the kind', 'protocol:websocket'],
  ['host:', 'part of the host', 'host:shop'],
  ['rule:', 'the rule that decided', 'rule:staff'],
  ['socket:', 'the socket', 'socket:shop'],
  ['edge:', 'the edge', 'edge:eu-1'],
  ['client:', 'the address of the client', 'client:192.0.2.7'],
  ['id:', 'the id in the log of requests', 'id:7f3a'],
];

export interface Completion {
  /** The filter after this is chosen. */
  text: string;
  label: string;
  note: string;
  isSaved?: boolean;
}

function read(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEPT) ?? '[]');
    return Array.isArray(found) ? found.filter((text) => typeof text === 'string').slice(0, MAX_KEPT) : [];
  } catch {
    return [];
  }
}

export const saved = signal<string[]>(read());

export function toggleSaved(text: string): void {
  saved.value = saved.value.includes(text)
    ? saved.value.filter((other) => other !== text)
    : [text, ...saved.value].slice(0, MAX_KEPT);
  localStorage.setItem(KEPT, JSON.stringify(saved.value));
}

/** Quotes hold spaces together; a quote itself cannot be written, so the value ends before it. */
export function quoted(value: string): string {
  const whole = value.split('"')[0]!;
  return /\s/.test(whole) ? `"${whole}"` : whole;
}

const FIELDS: Partial<Record<string, (one: Exchange) => string | number | null | undefined>> = {
  'path:': (one) => one.path.split('?')[0],
  'status:': (one) => one.status,
  'method:': (one) => one.method,
  'person:': (one) => one.identity,
  'rule:': (one) => one.rule,
  'socket:': (one) => one.socket_name,
  'edge:': (one) => one.edge,
  'host:': (one) => one.host,
  'client:': (one) => one.client?.replace(/:\d+$/, ''),
};

const FIXED: Record<string, string[]> = {
  'status:': ['2xx', '3xx', '4xx', '5xx', '>=400'],
  'duration:': ['>100ms', '>1s', '<10ms'],
  'size:': ['>10kb', '>1mb', '<1kb'],
  'state:': ['open', 'complete', 'failed', 'denied'],
  'protocol:': ['http', 'websocket', 'sse', 'grpc'],
  'header:': ['content-type=json', 'user-agent=', 'x-'],
};

/** Values of a key among the newest exchanges, the most frequent first. */
function values(key: string): string[] {
  const counts = new Map<string, number>();
  const add = (value: string | number | null | undefined) => {
    if (value != null && value !== '') counts.set(String(value), (counts.get(String(value)) ?? 0) + 1);
  };
  const read = FIELDS[key];
  for (const one of read ? newest(1000) : []) {
    add(read!(one));
  }
  const found = [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  return [...(FIXED[key] ?? []), ...found];
}

/** Completions of the word that the text ends with. */
export function complete(text: string): Completion[] {
  const last = /\S*$/.exec(text)![0];
  // A minus before a word means that it must not match.
  const word = last.replace(/^-/, '');
  const before = text.slice(0, text.length - word.length);
  const key = KEYS.find(([name]) => word.startsWith(name))?.[0];
  if (key) {
    const begun = word.slice(key.length).toLowerCase();
    return values(key)
      .filter((value) => value.toLowerCase().includes(begun) && value.toLowerCase() !== begun)
      .slice(0, 8)
      .map((value) => ({ text: `${before}${key}${quoted(value)} `, label: `${key}${value}`, note: '' }));
  }
  const kept: Completion[] = before
    ? []
    : saved.value
        .filter((other) => other.includes(word) && other !== word)
        .slice(0, 6)
        .map((other) => ({ text: other, label: other, note: 'saved', isSaved: true }));
  const keys = KEYS.filter(([name]) => name.startsWith(word.toLowerCase())).map(([name, note, example]) => ({
    text: before + name,
    label: name,
    note: `${note}, as ${example}`,
  }));
  return [...kept, ...keys];
}

/** The address of the first tunnel. */
export const address = (): string => state.value?.tunnels[0]?.url ?? '';
