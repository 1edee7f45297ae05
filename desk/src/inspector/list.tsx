// The list of requests, newest first.
import { useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Exchange } from '../api/wire';
import { clock, count, duration, plain, size } from '../parts/format';
import { Icon } from '../parts/icon';
import { reveal, VirtualRows } from '../parts/virtual';
import { choose, chosen, exchange, hasPeople, hasPlaces, isDetailShown, marked, shown } from './store';
import { Status } from './status';

const narrow = matchMedia('(max-width: 720px)');
const HEAD = 28;

export function useNarrow(): boolean {
  const [is, set] = useState(narrow.matches);
  useEffect(() => {
    const change = () => set(narrow.matches);
    narrow.addEventListener('change', change);
    return () => narrow.removeEventListener('change', change);
  }, []);
  return is;
}

const took = (one: Exchange): string => (one.duration_ms == null ? '' : duration(one.duration_ms));

function Row({ one, at, top, isNarrow }: { one: Exchange; at: number; top: number; isNarrow: boolean }) {
  const isChosen = chosen.value === one.id;
  const classes = ['row', isChosen && 'chosen', marked.value === one.id && 'marked', one.state === 'failed' && 'failed'];
  const path = plain(one.path);
  const who = one.identity ?? '';
  const replayed = one.replay_of != null && (
    <span class="again" title={`Request #${one.replay_of}, sent again`}>
      <Icon name="replay" />
      <span class="unseen">Sent again</span>
    </span>
  );
  return (
    <div
      id={`row-${one.id}`}
      class={classes.filter(Boolean).join(' ')}
      role="row"
      aria-rowindex={at + 2}
      aria-selected={isChosen}
     
      style={{ transform: `translateY(${top}px)` }}
      onClick={() => choose(one.id)}
    >
      <span class="cell time" role="gridcell">{clock(one.began)}</span>
      <span class={`cell method ${one.method.length > 7 ? 'long' : ''}`} role="gridcell">{plain(one.method)}</span>
      <span class="cell path" role="gridcell" title={path}>
        {replayed}
        {one.protocol !== 'http' && <span class="kind">{PROTOCOLS[one.protocol]}</span>}
        {path}
      </span>
      {!isNarrow && hasPeople.value && <span class="cell who" role="gridcell" title={who}>{plain(who)}</span>}
      {!isNarrow && hasPlaces.value && <span class="cell edge" role="gridcell">{plain(one.edge ?? '')}</span>}
      <span class="cell status" role="gridcell"><Status one={one} /></span>
      <span class="cell took" role="gridcell">{took(one)}</span>
      <span class="cell size" role="gridcell">{size(one.response_bytes)}</span>
    </div>
  );
}

const PROTOCOLS: Record<string, string> = { websocket: 'WS', sse: 'SSE', grpc: 'gRPC' };

const COLUMNS = [
  ['time', 'Time'],
  ['method', 'Method'],
  ['path', 'Path'],
  ['who', 'Person'],
  ['edge', 'Edge'],
  ['status', 'Status'],
  ['took', 'Duration'],
  ['size', 'Size'],
] as const;

/** How many of sorted ids are not above a limit. */
function upTo(ids: readonly number[], limit: number): number {
  let [low, high] = [0, ids.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ids[middle]! <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Whether the list is too narrow for all columns. */
function useCompact(scroller: RefObject<HTMLElement | null>): boolean {
  const [is, set] = useState(false);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(entry!.contentRect.width < COMPACT));
    observer.observe(scroller.current!);
    return () => observer.disconnect();
  }, []);
  return is;
}
const COMPACT = 520;

export function List() {
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow();
  const rowHeight = isNarrow ? 56 : 28;
  const stuck = isNarrow ? 0 : HEAD;
  const all = shown.value;
  // A list that is scrolled down stays as it is, so that nothing moves under the reader; new rows wait at the top.
  const frozen = useSignal<number | null>(null);
  const total = frozen.value === null ? all.length : upTo(all, frozen.value);
  const unseen = all.length - total;
  const isCompact = useCompact(scroller);
  const onScroll = () => {
    const isAtTop = scroller.current!.scrollTop <= 4;
    if (isAtTop) frozen.value = null;
    else frozen.value ??= all[total - 1] ?? null;
  };

  useEffect(() => {
    if (chosen.value === null || !scroller.current) return;
    const isAbove = frozen.value !== null && chosen.value > frozen.value;
    if (isAbove) frozen.value = null;
    const at = all.indexOf(chosen.value);
    if (at >= 0) reveal(scroller.current, (isAbove ? all.length : total) - 1 - at, rowHeight, stuck);
  }, [chosen.value, rowHeight]);

  const active = chosen.value !== null && exchange(chosen.value) ? `row-${chosen.value}` : undefined;
  const columns = COLUMNS.filter(
    ([name]) => (name !== 'who' || (hasPeople.value && !isNarrow)) && (name !== 'edge' || (hasPlaces.value && !isNarrow)),
  );
  const has = `${isCompact ? 'compact' : ''} ${hasPeople.value ? 'people' : ''} ${hasPlaces.value ? 'places' : ''}`;
  return (
    <section class={`list ${has}`} aria-label="Requests">
      <div
        ref={scroller}
        class="list-scroll"
        role="grid"
        tabIndex={0}
        aria-label="Requests, newest first"
        aria-rowcount={total + 1}
        aria-colcount={columns.length}
        aria-activedescendant={active}
        onScroll={onScroll}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && chosen.value !== null) {
            isDetailShown.value = true;
            document.getElementById('details')?.focus();
            event.preventDefault();
          }
        }}
      >
        <div class="head" role="rowgroup">
          <div class="row-head" role="row" aria-rowindex={1}>
            {columns.map(([name, label]) => (
              <span key={name} class={`cell ${name}`} role="columnheader">{label}</span>
            ))}
          </div>
        </div>
        <VirtualRows
          count={total}
          rowHeight={rowHeight}
          scroller={scroller}
          item={(at) => exchange(all[total - 1 - at]!)}
          look={isNarrow}
          row={(one, at, top) => <Row key={one.id} one={one} at={at} top={top} isNarrow={isNarrow} />}
        />
      </div>
      {unseen > 0 && (
        <button
          type="button"
          class="unseen-rows"
          onClick={() => {
            scroller.current!.scrollTop = 0;
            frozen.value = null;
          }}
        >
          <Icon name="up" /> {count(unseen)} new
        </button>
      )}
    </section>
  );
}
