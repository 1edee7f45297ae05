// Indentation of XML. The text is only laid out: nothing of it is understood or loaded.

// Each pattern starts differently, so that a text is read once whatever is in it.
const TOKEN =
  /<!--[^]*?-->|<!\[CDATA\[[^]*?\]\]>|<(?:\?|!(?!--|\[))[^>]*>|<\/?(?:[^<>"'!?]|"[^"<]*"|'[^'<]*')(?:[^<>"']|"[^"<]*"|'[^'<]*')*>|[^<]+/y;
const MAX_LENGTH = 1_000_000;
const MAX_DEPTH = 60;

/** The text with one element a line; as it was when it is not well formed. */
export function indent(text: string): string {
  if (text.length > MAX_LENGTH) return text;
  const tokens: string[] = [];
  for (TOKEN.lastIndex = 0; TOKEN.lastIndex < text.length; ) {
    const token = TOKEN.exec(text)?.[0];
    if (token === undefined) return text;
    tokens.push(token);
  }
  const out: string[] = [];
  const open: string[] = [];
  let leaf = false;
  const put = (line: string) => out.push('  '.repeat(Math.min(open.length, MAX_DEPTH)) + line);
  for (const token of tokens) {
    const name = /^<\/?([^\s/>]+)/.exec(token)?.[1] ?? '';
    if (/^<[?!]/.test(token)) {
      put(token);
      leaf = false;
    } else if (token.startsWith('</')) {
      if (open.pop() !== name) return text;
      if (leaf) out[out.length - 1] += token;
      else put(token);
      leaf = false;
    } else if (token.startsWith('<')) {
      put(token);
      leaf = !token.endsWith('/>');
      if (leaf) open.push(name);
    } else if (token.trim()) {
      if (leaf) out[out.length - 1] += token.trim();
      else put(token.trim());
    }
  }
  return open.length ? text : out.join('\n');
}
