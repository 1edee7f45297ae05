// The field of the filter, with completion of keys and values.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { count } from '../parts/format';
import { Icon } from '../parts/icon';
import { say } from '../parts/toast';
import { complete, saved, toggleSaved, type Completion } from './filters';
import { filter, filterProblem, shown, total } from './store';

const PAUSE_MS = 150;

export function FilterBar() {
  const input = useRef<HTMLInputElement>(null);
  const text = useSignal(filter.value);
  const isOpen = useSignal(false);
  const at = useSignal(-1);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  // The filter can be set from elsewhere on the page.
  useEffect(() => {
    if (filter.value !== text.value) text.value = filter.value;
  }, [filter.value]);

  const found = isOpen.value ? complete(text.value) : [];
  const apply = (value: string, isNow = false) => {
    text.value = value;
    clearTimeout(timer.current);
    if (isNow) filter.value = value;
    else timer.current = setTimeout(() => (filter.value = value), PAUSE_MS);
  };
  const accept = (one: Completion) => {
    const isWhole = one.isSaved || one.text.endsWith(' ');
    apply(one.text, isWhole);
    at.value = -1;
    isOpen.value = !isWhole;
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (!isOpen.value) isOpen.value = true;
      else if (found.length) {
        const step = event.key === 'ArrowDown' ? 1 : -1;
        at.value = at.value < 0 ? (step > 0 ? 0 : found.length - 1) : (at.value + step + found.length) % found.length;
      }
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (found[at.value]) accept(found[at.value]!);
      else {
        apply(text.value, true);
        isOpen.value = false;
      }
    } else if (event.key === 'Tab' && at.value >= 0 && found[at.value]) {
      event.preventDefault();
      accept(found[at.value]!);
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      if (isOpen.value && found.length) isOpen.value = false;
      else if (text.value) apply('', true);
      else document.querySelector<HTMLElement>('.list-scroll')?.focus();
    }
  };
  const trimmed = text.value.trim();
  const isSaved = saved.value.includes(trimmed);
  const isListed = isOpen.value && found.length > 0;
  return (
    <div class="filter" role="search">
      <div class={filterProblem.value ? 'field wrong' : 'field'}>
        <Icon name="search" />
        <input
          ref={input}
          id="filter"
          type="text"
          role="combobox"
          aria-label="Filter of requests"
          aria-expanded={isListed}
          aria-controls="completions"
          aria-autocomplete="list"
          aria-activedescendant={isListed && at.value >= 0 ? `completion-${at.value}` : undefined}
          aria-invalid={filterProblem.value ? true : undefined}
          aria-describedby={filterProblem.value ? 'filter-problem' : undefined}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          placeholder="Filter: status:5xx path:/webhooks body:invoice"
          value={text.value}
          onInput={(event) => {
            at.value = -1;
            isOpen.value = true;
            apply(event.currentTarget.value);
          }}
          onFocus={() => (isOpen.value = true)}
          onBlur={() => (isOpen.value = false)}
          onKeyDown={onKeyDown}
        />
        {trimmed ? (
          <>
            <span class="matches" aria-live="polite">
              {count(shown.value.length)} of {count(total.value)}
            </span>
            <button
              type="button"
              class={isSaved ? 'icon saved' : 'icon'}
              aria-pressed={isSaved}
              aria-label="Saved filter"
              title={isSaved ? 'Forget this filter' : 'Save this filter'}
              onClick={() => {
                toggleSaved(trimmed);
                say(isSaved ? 'Filter forgotten' : 'Filter saved');
              }}
            >
              <Icon name="star" />
            </button>
            <button type="button" class="icon" aria-label="Clear the filter" onClick={() => apply('', true)}>
              <Icon name="close" />
            </button>
          </>
        ) : (
          <kbd aria-hidden="true">/</kbd>
        )}
      </div>
      <ul id="completions" class="completions" role="listbox" aria-label="Completions" hidden={!isListed}>
        {found.map((one, row) => (
          <li
            key={one.label}
            id={`completion-${row}`}
            role="option"
            aria-selected={row === at.value}
            class={row === at.value ? 'at' : ''}
            onMouseDown={(event) => {
              event.preventDefault();
              accept(one);
            }}
          >
            <code>{one.label}</code>
            <span>{one.note}</span>
          </li>
        ))}
      </ul>
      {filterProblem.value && <p id="filter-problem" class="problem" role="alert">{filterProblem.value}</p>}
    </div>
  );
}
