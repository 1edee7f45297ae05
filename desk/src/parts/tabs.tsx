// Tabs, by the arrow keys too.
import { useRef } from 'preact/hooks';

interface Props<T extends string> {
  label: string;
  tabs: readonly { id: T; label: string; note?: string }[];
  at: T;
  panel: string;
  onChange: (id: T) => void;
}

export function Tabs<T extends string>({ label, tabs, at, panel, onChange }: Props<T>) {
  const element = useRef<HTMLDivElement>(null);
  const go = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const from = tabs.findIndex(({ id }) => id === at);
    const next = (from + step + tabs.length) % tabs.length;
    onChange(tabs[next]!.id);
    element.current?.querySelectorAll<HTMLElement>('[role=tab]')[next]?.focus();
  };
  return (
    <div ref={element} class="tabs" role="tablist" aria-label={label} onKeyDown={go}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          id={`tab-${tab.id}`}
          aria-selected={tab.id === at}
          aria-controls={panel}
          tabIndex={tab.id === at ? 0 : -1}
          onClick={() => onChange(tab.id)}
        >
          {tab.label}
          {tab.note && <span class="note">{tab.note}</span>}
        </button>
      ))}
    </div>
  );
}

/** A choice of one of a few, as joined buttons. */
export function Choice<T extends string>({ label, of, at, onChange }: { label: string; of: readonly [T, string][]; at: T; onChange: (id: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {of.map(([id, text]) => (
        <button key={id} type="button" aria-pressed={id === at} onClick={() => onChange(id)}>
          {text}
        </button>
      ))}
    </div>
  );
}
