// The keys of the page.
import { compare, copyCurl, replay } from './actions';
import { isDialogOpen } from './dialogs';
import { chosen, editing, isDetailShown, isHelpShown, move } from './store';
import { showTab } from './details';

const focus = (selector: string) => document.querySelector<HTMLElement>(selector)?.focus({ preventScroll: true });

/** Whether typing into this element writes text. */
function isWriting(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.('input, textarea, select, [contenteditable]');
}

const ofOne: Record<string, (id: number) => void> = {
  r: (id) => void replay(id),
  e: (id) => (editing.value = id),
  c: (id) => void copyCurl(id),
  d: compare,
};

const ofPage: Record<string, () => void> = {
  j: () => move(1),
  k: () => move(-1),
  g: () => move(-Infinity),
  G: () => move(Infinity),
  Home: () => move(-Infinity),
  End: () => move(Infinity),
  PageDown: () => move(15),
  PageUp: () => move(-15),
  '/': () => focus('#filter'),
  '?': () => (isHelpShown.value = true),
  Escape: () => {
    isDetailShown.value = false;
    focus('.list-scroll');
  },
};

const TABS = ['request', 'response', 'frames', 'about'] as const;

export function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isDialogOpen() || isWriting(event.target)) return;
  const inList = !!(event.target as HTMLElement | null)?.closest?.('.list-scroll') || event.target === document.body;
  const { key } = event;
  const handled = (): void => event.preventDefault();
  if (key === 'ArrowDown' || key === 'ArrowUp' || key === 'Home' || key === 'End' || key.startsWith('Page')) {
    if (!inList) return;
    handled();
    if (key === 'ArrowDown') move(1);
    else if (key === 'ArrowUp') move(-1);
    else ofPage[key]?.();
    return;
  }
  if (key === 'Enter' && event.target === document.body && chosen.value !== null) {
    isDetailShown.value = true;
    focus('#details');
    return handled();
  }
  if (ofPage[key]) {
    handled();
    return ofPage[key]();
  }
  if (chosen.value === null) return;
  if (ofOne[key]) {
    handled();
    return ofOne[key](chosen.value);
  }
  if (/^[1-4]$/.test(key)) showTab(TABS[Number(key) - 1]!);
}
