// A reader of JSON that keeps what JSON.parse loses: digits of numbers, repeated names and the place of an error.

export type Node =
  | { kind: 'object'; members: [string, Node][] }
  | { kind: 'array'; items: Node[] }
  | { kind: 'string'; text: string }
  | { kind: 'number' | 'word'; text: string };

/** The place of an error: lines and columns count from 1. */
export class JsonError extends Error {
  constructor(
    what: string,
    readonly line: number,
    readonly column: number,
  ) {
    super(`Line ${line}, column ${column}: ${what}`);
  }
}

const MAX_DEPTH = 200;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;
const SPACE = /[ \t\r\n]*/y;

export function parse(text: string): Node {
  let at = 0;
  const fail = (what: string): never => {
    const before = text.slice(0, at).split('\n');
    throw new JsonError(what, before.length, before.at(-1)!.length + 1);
  };
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    if (found !== undefined) at += found.length;
    return found;
  };
  const space = () => take(SPACE);
  const name = (): string => {
    const found = take(STRING);
    if (found === undefined) fail(at >= text.length ? 'the text ends here' : 'a string is expected');
    return JSON.parse(found!) as string;
  };
  const value = (depth: number): Node => {
    if (depth > MAX_DEPTH) fail('the nesting is too deep');
    const first = text[at];
    if (first === '"') return { kind: 'string', text: name() };
    if (first === '{') {
      const members: [string, Node][] = [];
      list('}', () => {
        const key = name();
        space();
        if (text[at] !== ':') fail('a colon is expected');
        at += 1;
        space();
        members.push([key, value(depth + 1)]);
      });
      return { kind: 'object', members };
    }
    if (first === '[') {
      const items: Node[] = [];
      list(']', () => void items.push(value(depth + 1)));
      return { kind: 'array', items };
    }
    const number = take(NUMBER);
    if (number !== undefined) return { kind: 'number', text: number };
    const word = take(WORD);
    if (word !== undefined) return { kind: 'word', text: word };
    return fail(at >= text.length ? 'the text ends here' : 'a value is expected');
  };
  const list = (end: string, item: () => void) => {
    at += 1;
    space();
    if (text[at] === end) {
      at += 1;
      return;
    }
    for (;;) {
      item();
      space();
      if (text[at] === end) {
        at += 1;
        return;
      }
      if (text[at] !== ',') fail(at >= text.length ? 'the text ends here' : `a comma or ${end} is expected`);
      at += 1;
      space();
    }
  };
  space();
  const root = value(0);
  space();
  if (at < text.length) fail('something stands after the value');
  return root;
}

/** How many values are in a node, itself included, counted up to a limit. */
export function weight(node: Node, limit: number): number {
  const children = node.kind === 'object' ? node.members.map(([, child]) => child) : node.kind === 'array' ? node.items : [];
  let sum = 1;
  for (const child of children) {
    if (sum >= limit) break;
    sum += weight(child, limit - sum);
  }
  return sum;
}
