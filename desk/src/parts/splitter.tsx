// A bar between two halves of the page, moved by the pointer or by the arrow keys.
import { signal } from '@preact/signals';

const LEAST = 25;
const MOST = 75;
const KEPT = 'sallyport-split';

const kept = Number(localStorage.getItem(KEPT));
/** The share of the left half, in hundredths. */
export const share = signal(kept >= LEAST && kept <= MOST ? kept : 52);

function set(value: number): void {
  share.value = Math.round(Math.max(LEAST, Math.min(MOST, value)) * 10) / 10;
  localStorage.setItem(KEPT, String(share.value));
}

export function Splitter({ label }: { label: string }) {
  return (
    <div
      class="splitter"
      role="separator"
      aria-label={label}
      aria-orientation="vertical"
      aria-valuenow={Math.round(share.value)}
      aria-valuemin={LEAST}
      aria-valuemax={MOST}
      tabIndex={0}
      onKeyDown={(event) => {
        const by = event.key === 'ArrowLeft' ? -2 : event.key === 'ArrowRight' ? 2 : 0;
        if (!by) return;
        event.preventDefault();
        set(share.value + by);
      }}
      onPointerDown={(event) => {
        event.preventDefault();
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const bar = event.currentTarget;
        if (!bar.hasPointerCapture(event.pointerId)) return;
        const { left, width } = bar.parentElement!.getBoundingClientRect();
        set(((event.clientX - left) / width) * 100);
      }}
    />
  );
}
