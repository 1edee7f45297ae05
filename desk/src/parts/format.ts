// Numbers, times and bytes as people read them.

const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];

/** A length: 512 B, 1.2 KB, 34 MB. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** A duration: 0.42 ms, 12 ms, 1.24 s, 2 m 05 s. */
export function duration(ms: number): string {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  return `${Math.floor(ms / 60_000)} m ${String(Math.floor((ms % 60_000) / 1000)).padStart(2, '0')} s`;
}

/** Milliseconds with one decimal place; empty where nothing was measured. */
export const ms = (value: number | null | undefined): string => (value == null ? '' : `${value.toFixed(1)} ms`);

const two = (value: number): string => String(value).padStart(2, '0');

/** The time of day, to the second. */
export function clock(at: string): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return '--:--:--';
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** The day and the time, to the millisecond. */
export function moment(at: string): string {
  const time = new Date(at);
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${clock(at)}.${String(time.getMilliseconds()).padStart(3, '0')}`;
}

export const count = (value: number): string => value.toLocaleString('en');

/** A number of things: 1 rule, 2 rules. */
export const countOf = (value: number, one: string): string => `${count(value)} ${one}${value === 1 ? '' : 's'}`;

/** Text for one line: what could move the cursor or turn the writing is shown by name. */
export function plain(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  );
}

/** A text with its line ends, where other characters without a shape are shown by name. */
export const lines = (text: string): string => text.split(/\r\n|\n/).map((line) => line.split('\t').map(plain).join('\t')).join('\n');

/** The media type without its parameters. */
export const mediaType = (text: string | null | undefined): string => (text ?? '').split(';')[0]!.trim().toLowerCase();

export function toBase64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export const fromBase64 = (text: string): Uint8Array => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
