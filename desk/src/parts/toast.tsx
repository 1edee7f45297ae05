// Short messages about what was done, read aloud by screen readers.
import { signal } from '@preact/signals';

interface Toast {
  number: number;
  text: string;
  isBad: boolean;
}

const SHOWN_MS = 4000;
const toast = signal<Toast | null>(null);
let number = 0;

export function say(text: string, isBad = false): void {
  number += 1;
  const mine = number;
  toast.value = { number, text, isBad };
  setTimeout(() => {
    if (toast.value?.number === mine) toast.value = null;
  }, isBad ? SHOWN_MS * 2 : SHOWN_MS);
}

export const complain = (error: unknown): void => say(error instanceof Error ? error.message : String(error), true);

export function Toasts() {
  const shown = toast.value;
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown && <div class={shown.isBad ? 'toast bad' : 'toast'}>{shown.text}</div>}
    </div>
  );
}

/** Copies a text, and says so. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied`);
  } catch {
    say(`The browser did not let ${what.toLowerCase()} be copied.`, true);
  }
}

/** Gives a file to the browser's downloads. */
export function save(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
