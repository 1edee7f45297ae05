// The messages of a WebSocket, of server-sent events or of gRPC, as they pass.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api } from '../api/client';
import type { Frame } from '../api/wire';
import { clock, count, fromBase64, plain, size } from '../parts/format';
import { Hex } from '../parts/hex';
import { Icon } from '../parts/icon';
import { parse, type Node } from '../parts/json';
import { Choice } from '../parts/tabs';
import { copy } from '../parts/toast';
import { Plain, Tree } from '../parts/tree';
import { VirtualRows } from '../parts/virtual';
import { onFrame } from './store';

const MAX_FRAMES = 20_000;
const HEIGHT = 28;
type Which = 'all' | 'client' | 'service';

/** Reads what was kept, and then follows. */
function useFrames(id: number): { frames: Frame[]; problem: string } {
  const [held, setHeld] = useState<{ id: number; frames: Frame[]; problem: string }>({ id, frames: [], problem: '' });
  useEffect(() => {
    const gone = new AbortController();
    let frames: Frame[] = [];
    let last = -1;
    let drawing = 0;
    const draw = () => {
      drawing ||= requestAnimationFrame(() => {
        drawing = 0;
        setHeld({ id, frames: frames.slice(-MAX_FRAMES), problem: '' });
      });
    };
    const add = (more: Frame[]) => {
      const fresh = more.filter(({ number }) => number > last);
      if (!fresh.length) return;
      last = fresh.at(-1)!.number;
      frames = frames.concat(fresh).slice(-MAX_FRAMES);
      draw();
    };
    const early: Frame[] = [];
    let isRead = false;
    const off = onFrame((of, frame) => {
      if (of !== id) return;
      if (isRead) add([frame]);
      else early.push(frame);
    });
    const read = async () => {
      for (let page = await api.frames(id, 0, gone.signal); ; page = await api.frames(id, last, gone.signal)) {
        add(page.items);
        if (page.next == null || !page.items.length) break;
      }
      isRead = true;
      add(early);
    };
    read().catch((error) => gone.signal.aborted || setHeld({ id, frames, problem: String(error.message ?? error) }));
    return () => {
      gone.abort();
      off();
      cancelAnimationFrame(drawing);
    };
  }, [id]);
  return held.id === id ? held : { frames: [], problem: '' };
}

function preview(frame: Frame): string {
  if (frame.text != null) return plain(frame.text.slice(0, 400));
  if (frame.base64) return [...fromBase64(frame.base64).subarray(0, 48)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return '';
}

function Content({ frame }: { frame: Frame }) {
  const node = useMemo((): Node | undefined => {
    try {
      return /^\s*[[{]/.test(frame.text ?? '') ? parse(frame.text!) : undefined;
    } catch {
      return undefined;
    }
  }, [frame]);
  if (frame.text != null) {
    return node ? <Tree node={node} /> : <Plain text={frame.text} limit={20_000} />;
  }
  return frame.base64 ? <Hex bytes={fromBase64(frame.base64)} /> : <p class="soft">Nothing inside</p>;
}

const WHO = { client: 'From the client', service: 'From the service' };

export function Frames({ id }: { id: number }) {
  const { frames, problem } = useFrames(id);
  const [which, setWhich] = useState<Which>('all');
  const [words, setWords] = useState('');
  const [at, setAt] = useState<number | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  // New messages are followed as long as the end of the list is in view.
  const isFollowing = useRef(true);
  useEffect(() => {
    setAt(null);
    isFollowing.current = true;
  }, [id]);
  const wanted = words.toLowerCase();
  const shown = useMemo(
    () =>
      frames.filter(
        (frame) =>
          (which === 'all' || frame.from === which) && (!wanted || (frame.text ?? '').toLowerCase().includes(wanted)),
      ),
    [frames, which, wanted],
  );
  const end = shown.at(-1)?.number;
  useLayoutEffect(() => {
    const element = scroller.current!;
    if (isFollowing.current) element.scrollTop = element.scrollHeight;
  }, [end, which, wanted]);
  const open = at === null ? undefined : frames.find(({ number }) => number === at);
  const step = (event: KeyboardEvent) => {
    const by = event.key === 'ArrowDown' || event.key === 'j' ? 1 : event.key === 'ArrowUp' || event.key === 'k' ? -1 : 0;
    if (!by || !shown.length) return;
    event.preventDefault();
    event.stopPropagation();
    const from = shown.findIndex(({ number }) => number === at);
    const next = Math.max(0, Math.min(shown.length - 1, from < 0 ? 0 : from + by));
    setAt(shown[next]!.number);
    const element = scroller.current!;
    if (next * HEIGHT < element.scrollTop) element.scrollTop = next * HEIGHT;
    else if ((next + 1) * HEIGHT > element.scrollTop + element.clientHeight) element.scrollTop = (next + 1) * HEIGHT - element.clientHeight;
  };
  return (
    <section class="frames" aria-label="Messages">
      <div class="bar">
        <Choice
          label="Whose messages"
          of={[
            ['all', 'All'],
            ['client', 'Client'],
            ['service', 'Service'],
          ]}
          at={which}
          onChange={setWhich}
        />
        <input
          class="small"
          type="search"
          aria-label="Words in messages"
          placeholder="Words"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        <span class="soft facts">{count(shown.length)} messages</span>
      </div>
      {frames.length > 0 && frames[0]!.number > 1 && (
        <p class="note-line">The first {count(frames[0]!.number - 1)} are not kept any more.</p>
      )}
      {problem && <p class="note-line">{problem}</p>}
      <div
        ref={scroller}
        class="frame-list"
        role="grid"
        aria-label="Messages, oldest first"
        aria-rowcount={shown.length}
        aria-activedescendant={open ? `frame-${open.number}` : undefined}
        tabIndex={0}
        onKeyDown={step}
        onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => {
          isFollowing.current = scrollTop + clientHeight >= scrollHeight - 4;
        }}
      >
        <VirtualRows
          count={shown.length}
          rowHeight={HEIGHT}
          scroller={scroller}
          item={(row) => shown[row]}
          look={at}
          row={(frame, row, top) => {
            return (
              <div
                key={frame.number}
                id={`frame-${frame.number}`}
                class={`frame-row ${frame.from} ${frame.number === at ? 'chosen' : ''}`}
                role="row"
                aria-rowindex={row + 1}
                aria-selected={frame.number === at}
                style={{ transform: `translateY(${top}px)` }}
                onClick={() => setAt(frame.number === at ? null : frame.number)}
              >
                <span class="arrow" role="gridcell" title={WHO[frame.from]}>
                  <Icon name={frame.from === 'client' ? 'up' : 'down'} />
                  <span class="unseen">{WHO[frame.from]}</span>
                </span>
                <span class="cell time" role="gridcell">{clock(frame.at)}</span>
                <span class="cell kind-of" role="gridcell">{plain(frame.kind)}</span>
                <span class="cell what" role="gridcell">{preview(frame)}</span>
                <span class="cell size" role="gridcell">{size(frame.bytes)}</span>
              </div>
            );
          }}
        />
      </div>
      {open && (
        <div class="frame-open">
          <div class="bar">
            <h3>
              Message {open.number}
            </h3>
            <span class="soft facts">
              {WHO[open.from].toLowerCase()}, {plain(open.kind)}, {size(open.bytes)}
              {open.is_truncated && ', cut'}
            </span>
            {open.text != null && (
              <button type="button" class="icon" aria-label="Copy the message" onClick={() => copy(open.text!, 'The message')}>
                <Icon name="copy" />
              </button>
            )}
          </div>
          {open.problem && <p class="note-line">{plain(open.problem)}</p>}
          <Content frame={open} />
        </div>
      )}
    </section>
  );
}
