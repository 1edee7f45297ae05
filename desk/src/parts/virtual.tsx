// A list that draws only the rows in view.
import type { ComponentChildren, RefObject } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

const SPARE = 6;

interface Props {
  count: number;
  rowHeight: number;
  row: (at: number, top: number) => ComponentChildren;
  scroller: RefObject<HTMLElement | null>;
}

/** The rows of a scrolling element: the element keeps its full height, and holds the rows in view. */
export function VirtualRows({ count, rowHeight, row, scroller }: Props) {
  const body = useRef<HTMLDivElement>(null);
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
  const rows: ComponentChildren[] = [];
  for (let at = first; at < last; at += 1) rows.push(row(at, at * rowHeight));
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
