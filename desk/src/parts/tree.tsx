// JSON with folding.
import { useState } from 'preact/hooks';
import { lines, plain } from './format';
import { weight, type Node } from './json';

const STEP = 100;
const LONG = 2000;

function Scalar({ node }: { node: Exclude<Node, { kind: 'object' | 'array' }> }) {
  const [isWhole, setWhole] = useState(false);
  if (node.kind !== 'string') return <span class={`json-${node.kind}`}>{node.text}</span>;
  const isLong = node.text.length > LONG && !isWhole;
  const shown = isLong ? node.text.slice(0, LONG) : node.text;
  return (
    <span class="json-string">
      "{plain(JSON.stringify(shown).slice(1, -1))}
      {isLong ? (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          … all {node.text.length} characters
        </button>
      ) : (
        '"'
      )}
    </span>
  );
}

function Branch({ name, node, depth, open }: { name?: string; node: Node; depth: number; open: number }) {
  const [isOpen, setOpen] = useState(depth < open);
  const [shown, setShown] = useState(STEP);
  const label = name === undefined ? null : <span class="json-name">{plain(name)}: </span>;
  if (node.kind !== 'object' && node.kind !== 'array') {
    return (
      <div class="json-row">
        {label}
        <Scalar node={node} />
      </div>
    );
  }
  const entries: [string | undefined, Node][] =
    node.kind === 'object' ? node.members : node.items.map((item) => [undefined, item]);
  const [begin, end] = node.kind === 'object' ? ['{', '}'] : ['[', ']'];
  if (!entries.length) {
    return (
      <div class="json-row">
        {label}
        {begin}
        {end}
      </div>
    );
  }
  const noun = node.kind === 'object' ? 'member' : 'item';
  return (
    <div class="json-row">
      <button type="button" class="fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {label}
        <span class="json-mark">{begin}</span>
        {!isOpen && (
          <span class="json-count">
            {entries.length} {noun}
            {entries.length === 1 ? '' : 's'} {end}
          </span>
        )}
      </button>
      {isOpen && (
        <>
          <div class="json-inner">
            {entries.slice(0, shown).map(([key, child], at) => (
              <Branch key={at} name={key} node={child} depth={depth + 1} open={open} />
            ))}
            {entries.length > shown && (
              <button type="button" class="link" onClick={() => setShown(shown + STEP * 5)}>
                {entries.length - shown} more
              </button>
            )}
          </div>
          <span class="json-mark json-end">{end}</span>
        </>
      )}
    </div>
  );
}

/** Large values start folded below the second level. */
export function Tree({ node }: { node: Node }) {
  const open = weight(node, 400) >= 400 ? 2 : 20;
  return (
    <div class="code tree">
      <Branch node={node} depth={0} open={open} />
    </div>
  );
}

/** Text as it is, cut at a length until the rest is asked for. */
export function Plain({ text, limit = 100_000, isWrapped = true }: { text: string; limit?: number; isWrapped?: boolean }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > limit && !isWhole;
  return (
    <>
      <pre class={isWrapped ? 'code wrap' : 'code'} tabIndex={0}>
        {lines(isCut ? text.slice(0, limit) : text)}
      </pre>
      {isCut && (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          Show all {text.length} characters
        </button>
      )}
    </>
  );
}
