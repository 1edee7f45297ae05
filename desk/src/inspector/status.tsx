// The status of an exchange: its number, or how it ended without one.
import type { Exchange } from '../api/wire';

const WORDS = { open: 'running', complete: 'ended', failed: 'failed', denied: 'denied' };

export function Status({ one }: { one: Pick<Exchange, 'status' | 'state'> }) {
  if (one.state === 'failed' && one.status == null) return <span class="status-text s5">failed</span>;
  if (one.status == null) return <span class={`status-text ${one.state === 'denied' ? 's4' : 's0'}`}>{WORDS[one.state]}</span>;
  const isOpen = one.state === 'open';
  return (
    <span class={`status-text s${Math.floor(one.status / 100)}`} title={isOpen ? 'It still runs' : undefined}>
      {one.status}
      {isOpen && <span class="dot" aria-label="running" role="img" />}
      {one.state === 'failed' && <span class="broken" title="The response broke off">!</span>}
    </span>
  );
}
