// The list of requests, newest first.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
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

export function List() {
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow();
  const rowHeight = isNarrow ? 56 : 28;
  const stuck = isNarrow ? 0 : HEAD;
  const ids = shown.value;
  const total = ids.length;
  const newest = ids[total - 1];
  const unseen = useSignal(0);
  const last = useRef({ newest, total, rowHeight });

  // New rows come in at the top; a list that is scrolled down stays where the reader is.
  useLayoutEffect(() => {
    const element = scroller.current!;
    const before = last.current;
    last.current = { newest, total, rowHeight };
    if (before.rowHeight !== rowHeight || before.newest === undefined || newest === undefined) return;
    if (newest <= before.newest || element.scrollTop <= 4) return;
    let added = 0;
    while (added < total && ids[total - 1 - added]! > before.newest) added += 1;
    element.scrollTop += added * rowHeight;
    unseen.value += added;
  }, [ids]);

  useEffect(() => {
    if (chosen.value === null || !scroller.current) return;
    const at = ids.indexOf(chosen.value);
    if (at >= 0) reveal(scroller.current, total - 1 - at, rowHeight, stuck);
  }, [chosen.value, rowHeight]);

  const active = chosen.value !== null && exchange(chosen.value) ? `row-${chosen.value}` : undefined;
  const columns = COLUMNS.filter(
    ([name]) => (name !== 'who' || (hasPeople.value && !isNarrow)) && (name !== 'edge' || (hasPlaces.value && !isNarrow)),
  );
  const has = `${hasPeople.value ? 'people' : ''} ${hasPlaces.value ? 'places' : ''}`;
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
        onScroll={() => {
          if (scroller.current!.scrollTop <= 4) unseen.value = 0;
        }}
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
          row={(at, top) => {
            const one = exchange(ids[total - 1 - at]!);
            return one && <Row key={one.id} one={one} at={at} top={top} isNarrow={isNarrow} />;
          }}
        />
      </div>
      {unseen.value > 0 && (
        <button
          type="button"
          class="unseen-rows"
          onClick={() => {
            scroller.current!.scrollTop = 0;
            unseen.value = 0;
          }}
        >
          <Icon name="up" /> {count(unseen.value)} new
        </button>
      )}
    </section>
  );
}
