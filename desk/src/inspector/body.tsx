// A body: decoded for reading, raw, or as bytes.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { api, type Side } from '../api/client';
import type { Message, Part, View } from '../api/wire';
import { mediaType, plain, size } from '../parts/format';
import { Hex } from '../parts/hex';
import { Icon } from '../parts/icon';
import { JsonError, parse } from '../parts/json';
import { Choice } from '../parts/tabs';
import { complain, copy, save } from '../parts/toast';
import { Plain, Tree } from '../parts/tree';
import { useLoaded } from '../parts/use';
import { indent } from '../parts/xml';

type Form = 'view' | 'text' | 'hex';

/** Types that a browser draws and never runs. */
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif', 'image/bmp', 'image/x-icon', 'image/svg+xml'];

function Json({ text, isTruncated }: { text: string; isTruncated: boolean }) {
  const read = useMemo(() => {
    try {
      return parse(text);
    } catch (error) {
      return error instanceof JsonError ? error : new JsonError('it cannot be read', 1, 1);
    }
  }, [text]);
  if (!(read instanceof JsonError)) return <Tree node={read} />;
  return (
    <>
      <p class="note-line">{isTruncated ? 'The JSON is cut, so it is shown as text.' : `This is no valid JSON. ${read.message}.`}</p>
      <Plain text={text} />
    </>
  );
}

function Text({ text, type }: { text: string; type: string }) {
  const laid = useMemo(() => (/[/+]xml$/.test(type) ? indent(text) : text), [text, type]);
  return <Plain text={laid} />;
}

function Picture({ id, side, type }: { id: number; side: Side; type: string }) {
  const [address, setAddress] = useState('');
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    const gone = new AbortController();
    let made = '';
    setBroken(false);
    api.body(id, side, 'decoded', gone.signal).then(
      (bytes) => {
        if (gone.signal.aborted) return;
        made = URL.createObjectURL(new Blob([bytes], { type }));
        setAddress(made);
      },
      (error) => gone.signal.aborted || complain(error),
    );
    return () => {
      gone.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [id, side]);
  if (isBroken) return <p class="note-line">The browser cannot draw this image.</p>;
  return (
    <div class="picture">
      {address && <img src={address} alt={`The body, ${type}`} onError={() => setBroken(true)} />}
    </div>
  );
}

function Form({ text, parts }: { text?: string | null; parts?: Part[] }) {
  const pairs: [string, string][] = parts?.length
    ? parts.map((part) => [part.name ?? '', part.text ?? ''])
    : [...new URLSearchParams(text ?? '')];
  return <Pairs of={pairs} label="Fields of the form" />;
}

/** Names and values. */
export function Pairs({ of, label }: { of: [string, string][]; label: string }) {
  return (
    <table class="pairs" aria-label={label}>
      <tbody>
        {of.slice(0, MAX_PAIRS).map(([name, value], at) => (
          <tr key={at}>
            <th scope="row">{plain(name)}</th>
            <td>{plain(value)}</td>
          </tr>
        ))}
        {of.length > MAX_PAIRS && (
          <tr>
            <td colSpan={2}>and {of.length - MAX_PAIRS} more</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}
const MAX_PAIRS = 1000;
const MAX_PARTS = 200;

function Parts({ parts }: { parts: Part[] }) {
  return (
    <div class="parts">
      {parts.length > MAX_PARTS && <p class="note-line">The first {MAX_PARTS} of {parts.length} parts are shown.</p>}
      {parts.slice(0, MAX_PARTS).map((part, at) => (
        <section key={at} class="part">
          <h4>
            {plain(part.name ?? `Part ${at + 1}`)}
            {part.file_name && <span class="file">{plain(part.file_name)}</span>}
            <span class="soft">
              {plain(part.content_type ?? '')} {size(part.bytes)}
            </span>
          </h4>
          {part.text != null && part.text !== '' && (
            mediaType(part.content_type).endsWith('json') ? <Json text={part.text} isTruncated={false} /> : <Plain text={part.text} limit={5000} />
          )}
        </section>
      ))}
    </div>
  );
}

function Shown({ id, side, view }: { id: number; side: Side; view: View }) {
  const type = mediaType(view.content_type);
  if (view.kind === 'json' && view.text != null) return <Json text={view.text} isTruncated={view.is_truncated} />;
  if (view.kind === 'form') return <Form text={view.text} parts={view.parts} />;
  if (view.kind === 'multipart') return <Parts parts={view.parts ?? []} />;
  if (view.kind === 'image' && IMAGES.includes(type)) return <Picture id={id} side={side} type={type} />;
  if (view.text != null) return <Text text={view.text} type={type} />;
  return <Bytes id={id} side={side} form="decoded" as="hex" />;
}

/** The bytes as they came, or decoded, as text or as numbers. */
function Bytes({ id, side, form, as }: { id: number; side: Side; form: 'raw' | 'decoded'; as: 'text' | 'hex' }) {
  const loaded = useLoaded((signal) => api.body(id, side, form, signal), `${id} ${side} ${form}`);
  if (loaded.is === 'loading') return <p class="soft">Loading</p>;
  if (loaded.is === 'failed') return <p class="note-line">{loaded.failure}</p>;
  const bytes = new Uint8Array(loaded.value);
  return as === 'hex' ? <Hex bytes={bytes} /> : <Plain text={new TextDecoder().decode(bytes)} />;
}

export function Body({ id, side, message, revision }: { id: number; side: Side; message: Message; revision: unknown }) {
  const [form, setForm] = useState<Form>('view');
  const loaded = useLoaded((signal) => api.view(id, side, signal), `${id} ${side}`, revision);
  const name = `${side}-${id}.${EXTENSIONS[mediaType(message.content_type)] ?? 'bin'}`;
  if (message.bytes === 0) return <p class="soft none">No body</p>;
  const load = async (): Promise<ArrayBuffer> => api.body(id, side, form === 'view' ? 'decoded' : 'raw');
  return (
    <section class="body" aria-label={`Body of the ${side}`}>
      <div class="bar">
        <h3>Body</h3>
        <span class="soft facts">
          {mediaType(message.content_type) || 'no type'}, {size(message.bytes)}
          {message.content_encoding && `, ${plain(message.content_encoding)}`}
        </span>
        <Choice
          label="How the body is shown"
          of={[
            ['view', 'Decoded'],
            ['text', 'Raw'],
            ['hex', 'Hex'],
          ]}
          at={form}
          onChange={setForm}
        />
        <button
          type="button"
          class="icon"
          aria-label={`Copy the body of the ${side}`}
          title="Copy the body"
          onClick={() => load().then((bytes) => copy(new TextDecoder().decode(bytes), 'The body'), complain)}
        >
          <Icon name="copy" />
        </button>
        <button
          type="button"
          class="icon"
          aria-label={`Download the body of the ${side}`}
          title="Download the body"
          onClick={() => load().then((bytes) => save(new Blob([bytes], { type: 'application/octet-stream' }), name), complain)}
        >
          <Icon name="download" />
        </button>
      </div>
      {message.is_truncated && (
        <p class="note-line">
          Only {size(message.kept)} of {size(message.bytes)} were kept.
        </p>
      )}
      {message.missed > 0 && (
        <p class="note-line">{size(message.missed)} were not taken in, because traffic does not wait for the inspector.</p>
      )}
      {form === 'view' && loaded.is === 'there' && (
        <>
          {loaded.value.problem && loaded.value.kind !== 'json' && <p class="note-line">{plain(loaded.value.problem)}</p>}
          <Shown id={id} side={side} view={loaded.value} />
        </>
      )}
      {form === 'view' && loaded.failure && <p class="note-line">{loaded.failure}</p>}
      {form !== 'view' && <Bytes key={`${id} ${side}`} id={id} side={side} form="raw" as={form} />}
    </section>
  );
}

const EXTENSIONS: Record<string, string> = {
  'application/json': 'json',
  'text/plain': 'txt',
  'text/css': 'css',
  'text/csv': 'csv',
  'image/png': 'png',
  'image/jpeg': 'jpg',
  'image/gif': 'gif',
  'image/webp': 'webp',
  'application/pdf': 'pdf',
};
