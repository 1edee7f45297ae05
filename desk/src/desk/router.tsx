// Places in the desk: the path of the address, and links that stay in the page.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';

interface Place {
  path: string;
  query: URLSearchParams;
}

const here = (): Place => ({ path: decode(location.pathname), query: new URLSearchParams(location.search) });
const decode = (path: string): string => {
  try {
    return decodeURI(path);
  } catch {
    return '/';
  }
};

export const place = signal<Place>(here());
/** Whether somebody went from one place to another, so that the new one takes the focus. */
export let hasMoved = false;

export function go(to: string, isReplaced = false): void {
  if (isReplaced) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  hasMoved = true;
  place.value = here();
}

export function followHistory(): void {
  addEventListener('popstate', () => {
    hasMoved = true;
    place.value = here();
  });
}

/** A link to a place in the desk. Other keys and buttons do what the browser does with them. */
export function A({ to, children, ...more }: { to: string; children: ComponentChildren; class?: string; 'aria-current'?: 'page' }) {
  return (
    <a
      href={to}
      {...more}
      onClick={(event) => {
        if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}

/** A path of segments, each of which may hold any text. */
export const to = (...segments: string[]): string => `/${segments.map(encodeURIComponent).join('/')}`;
