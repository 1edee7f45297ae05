// A list that draws only the rows in view.
import type { RefObject, VNode } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

const SPARE = 6;

interface Props<T> {
  count: number;
  rowHeight: number;
  scroller: RefObject<HTMLElement | null>;
  /** What a row shows. As long as it is the same object, the row is not drawn again. */
  item: (at: number) => T | undefined;
  /** Whatever else changes the look of all rows. */
  look?: unknown;
  row: (item: T, at: number, top: number) => VNode;
}

interface Drawn<T> {
  look: unknown;
  rows: Map<number, { item: T; vnode: VNode }>;
}

/** The rows of a scrolling element: the element keeps its full height, and holds the rows in view. */
export function VirtualRows<T>({ count, rowHeight, scroller, item, look, row }: Props<T>) {
  const body = useRef<HTMLDivElement>(null);
  const drawn = useRef<Drawn<T>>({ look, rows: new Map() });
  const [view, setView] = useState({ top: 0, height: 600 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const top = Math.max(0, element.scrollTop - (body.current?.offsetTop ?? 0));
      const height = element.clientHeight;
      setView((old) => (old.top === top && old.height === height ? old : { top, height }));
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    element.addEventListener('scroll', later, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(element);
    return () => {
      element.removeEventListener('scroll', later);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [scroller]);
  const first = Math.max(0, Math.min(Math.floor(view.top / rowHeight) - SPARE, count - 1));
  const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + SPARE);
  const before = drawn.current;
  const after: Drawn<T> = { look, rows: new Map() };
  const rows: VNode[] = [];
  for (let at = first; at < last; at += 1) {
    const shown = item(at);
    if (shown === undefined) continue;
    const held = before.look === look ? before.rows.get(at) : undefined;
    const vnode = held?.item === shown ? held.vnode : row(shown, at, at * rowHeight);
    after.rows.set(at, { item: shown, vnode });
    rows.push(vnode);
  }
  drawn.current = after;
  return (
    <div ref={body} class="virtual" role="rowgroup" style={{ height: `${count * rowHeight}px` }}>
      {rows}
    </div>
  );
}

/** Scrolls so that a row is in view below what sticks at the top. */
export function reveal(element: HTMLElement, at: number, rowHeight: number, stuck: number): void {
  const top = at * rowHeight;
  const height = element.clientHeight - stuck;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + rowHeight > element.scrollTop + height) element.scrollTop = top + rowHeight - height;
}
