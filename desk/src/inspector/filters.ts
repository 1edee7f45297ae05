// What can be written into the filter, and the filters that the reader keeps.
import { signal } from '@preact/signals';
import { exchange, shown, state } from './store';

const KEPT = 'sallyport-inspector-filters';
const MAX_KEPT = 50;

export const KEYS: readonly [string, string, string?][] = [
  ['path:', 'part of the path', 'path:/webhooks'],
  ['status:', 'a status or a class', 'status:5xx'],
  ['method:', 'the method', 'method:POST'],
  ['header:', 'a header, with its value or without', 'header:content-type=json'],
  ['body:', 'text in a body', 'body:invoice'],
  ['person:', 'who was let in', 'person:alice@example.com'],
  ['duration:', 'longer or shorter than', 'duration:>100ms'],
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

const quoted = (value: string): string => (/[\s"]/.test(value) ? `"${value.replaceAll('"', '\\"')}"` : value);

/** Values of a key among the newest exchanges, the most frequent first. */
function values(key: string): string[] {
  const counts = new Map<string, number>();
  const add = (value: string | number | null | undefined) => {
    if (value != null && value !== '') counts.set(String(value), (counts.get(String(value)) ?? 0) + 1);
  };
  for (const id of shown.peek().slice(-1000)) {
    const one = exchange(id);
    if (!one) continue;
    if (key === 'path:') add(one.path.split('?')[0]);
    else if (key === 'status:') add(one.status);
    else if (key === 'method:') add(one.method);
    else if (key === 'person:') add(one.identity);
    else if (key === 'edge:') add(one.edge);
    else if (key === 'host:') add(one.host);
  }
  const found = [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  if (key === 'status:') return ['2xx', '3xx', '4xx', '5xx', ...found];
  if (key === 'duration:') return ['>100ms', '>1s', '<10ms'];
  if (key === 'header:') return ['content-type=json', 'user-agent=', 'x-'];
  return found;
}

/** Completions of the word that the text ends with. */
export function complete(text: string): Completion[] {
  const word = /\S*$/.exec(text)![0];
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
    note: `${note}${example ? `, as ${example}` : ''}`,
  }));
  return [...kept, ...keys];
}

/** The address of the first tunnel. */
export const address = (): string => state.value?.tunnels[0]?.url ?? '';
