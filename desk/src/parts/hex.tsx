// Bytes as hexadecimal numbers beside their characters.
import { useRef } from 'preact/hooks';
import { VirtualRows } from './virtual';

const WIDTH = 16;
const HEIGHT = 20;

function line(bytes: Uint8Array, at: number): { place: string; numbers: string; characters: string } {
  const row = [...bytes.subarray(at, at + WIDTH)];
  const numbers = row.map((byte) => byte.toString(16).padStart(2, '0'));
  return {
    place: at.toString(16).padStart(8, '0'),
    numbers: `${numbers.slice(0, 8).join(' ')}  ${numbers.slice(8).join(' ')}`.padEnd(48),
    characters: row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '·')).join(''),
  };
}

export function Hex({ bytes }: { bytes: Uint8Array }) {
  const scroller = useRef<HTMLDivElement>(null);
  const count = Math.ceil(bytes.length / WIDTH);
  return (
    <div ref={scroller} class="code hex" role="table" aria-label="Bytes" tabIndex={0}>
      <VirtualRows
        count={count}
        rowHeight={HEIGHT}
        scroller={scroller}
        item={(at) => at}
        look={bytes}
        row={(at, _, top) => {
          const { place, numbers, characters } = line(bytes, at * WIDTH);
          return (
            <div key={at} class="hex-row" role="row" style={{ transform: `translateY(${top}px)` }}>
              <span class="hex-place" role="cell">{place}</span>
              <span role="cell">{numbers}</span>
              <span class="hex-text" role="cell">{characters}</span>
            </div>
          );
        }}
      />
    </div>
  );
}
