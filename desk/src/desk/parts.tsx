// What the places of the desk are made of: their head, tables, facts, forms, states, and ways by API and command line.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Dialog } from '../parts/dialog';
import { moment, plain } from '../parts/format';
import { Icon } from '../parts/icon';
import { complain, copy, say } from '../parts/toast';
import type { Loaded } from '../parts/use';
import { UNREACHABLE } from './api';
import { hasMoved } from './router';

/** A place: its heading, which takes the focus from the former place, what may be done, and what is there. */
export function Place({ title, actions, children }: { title: string; actions?: ComponentChildren; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Sallyport`;
  }, [title]);
  useEffect(() => {
    if (!hasMoved) return;
    heading.current?.focus({ preventScroll: true });
    heading.current?.closest('main')?.scrollTo(0, 0);
  }, []);
  return (
    <>
      <div class="place-head">
        <h1 ref={heading} tabIndex={-1}>
          {plain(title)}
        </h1>
        <span class="fill" />
        {actions && <div class="place-actions">{actions}</div>}
      </div>
      {children}
    </>
  );
}

/** What was loaded, or how far it is. The frame says when the server cannot be reached. */
export function Await<T>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  if (of.is === 'loading') return <p class="soft" role="status">Loading…</p>;
  if (of.is === 'failed') return <p class="note-line bad" role="alert">{plain(of.failure)}</p>;
  return (
    <>
      {of.failure && of.failure !== UNREACHABLE && (
        <p class="note-line bad" role="status">
          {plain(of.failure)} What follows is the answer before.
        </p>
      )}
      {children(of.value)}
    </>
  );
}

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  /** Whether the cell has a button that says what the head says. */
  isAction?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  idOf: (row: T) => string;
  /** What is said without rows, and what leads to some. */
  empty: ComponentChildren;
}

/** A table; on a narrow screen each row is a block. The roles stay when the display changes. */
export function Table<T>({ label, columns, rows, idOf, empty }: TableProps<T>) {
  if (!rows.length) return <div class="soft none">{empty}</div>;
  return (
    <table class="list-table" role="table" aria-label={label}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map(({ head, isAction }) => (
            <th key={head} role="columnheader" scope="col">
              <span class={isAction ? 'unseen' : ''}>{head}</span>
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={idOf(row)} role="row">
            {columns.map(({ head, cell, isAction }) => (
              <td key={head} role="cell" class={isAction ? 'act' : ''} data-head={isAction ? '' : head}>
                {cell(row)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Names and values; a value that is missing is left out with its name. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts-list">
      {of
        .filter(([, value]) => value !== undefined && value !== null && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export const Section = ({ title, actions, children }: { title: string; actions?: ComponentChildren; children: ComponentChildren }) => (
  <section class="section" aria-label={title}>
    <div class="section-head">
      <h2>{title}</h2>
      <span class="fill" />
      {actions}
    </div>
    {children}
  </section>
);

/** A state in a colour and in words. */
export const Lamp = ({ is, children }: { is: 'good' | 'warn' | 'bad' | 'off'; children: ComponentChildren }) => (
  <span class={`state ${is}`}>
    <span class="lamp" aria-hidden="true" />
    {children}
  </span>
);

export const Time = ({ at }: { at: string | null | undefined }) => (at ? <time dateTime={at}>{moment(at).slice(0, 19)}</time> : null);

/** A line that is copied with one press. */
export const Copied = ({ text, what }: { text: string; what: string }) => (
  <div class="copied">
    <code>{plain(text)}</code>
    <button type="button" class="icon" aria-label={`Copy: ${what}`} title={`Copy: ${what}`} onClick={() => copy(text, what)}>
      <Icon name="copy" />
    </button>
  </div>
);

/** The request and the command that do the same as this place. */
export function Ways({ of }: { of: [request: string, command: string][] }) {
  return (
    <details class="ways">
      <summary>API and command line</summary>
      {of.map(([request, line]) => (
        <div key={request + line}>
          <Copied text={request} what="The request" />
          <Copied text={line} what="The command" />
        </div>
      ))}
    </details>
  );
}

type Values = Record<string, string>;

interface FormProps {
  button: string;
  onSend: (values: Values) => Promise<unknown>;
  onCancel?: () => void;
  /** The command that does the same with what is filled in. */
  line?: (values: Values) => string;
  children: ComponentChildren;
}

const valuesOf = (form: HTMLFormElement): Values => {
  const values: Values = {};
  for (const [name, value] of new FormData(form)) values[name] = values[name] ? `${values[name]}\n${value}` : String(value);
  return values;
};

/** A form that shows what the server says about it, and keeps what was typed. */
export function Form({ button, onSend, onCancel, line, children }: FormProps) {
  const element = useRef<HTMLFormElement>(null);
  const [problem, setProblem] = useState('');
  const [isSent, setSent] = useState(false);
  const [values, setValues] = useState<Values>({});
  const look = () => line && setValues(valuesOf(element.current!));
  useEffect(look, []);
  return (
    <form
      ref={element}
      class="form"
      onInput={look}
      onSubmit={async (event) => {
        event.preventDefault();
        if (isSent) return;
        setSent(true);
        setProblem('');
        try {
          await onSend(valuesOf(element.current!));
        } catch (error) {
          setProblem(error instanceof Error ? error.message : String(error));
        }
        setSent(false);
      }}
    >
      {problem && (
        <p class="note-line bad" role="alert">
          {plain(problem)}
        </p>
      )}
      {children}
      {line && <Copied text={line(values)} what="The command" />}
      <div class="form-foot">
        <button type="submit" class="main" aria-disabled={isSent}>
          {button}
        </button>
        {onCancel && (
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
        )}
      </div>
    </form>
  );
}

interface FieldProps {
  label: string;
  name: string;
  value?: string;
  type?: 'text' | 'email' | 'password' | 'number' | 'datetime-local';
  hint?: string;
  isNeeded?: boolean;
  isFirst?: boolean;
  complete?: string;
  /** The choices, instead of free text. */
  of?: readonly string[];
  lines?: number;
}

export function Field({ label, name, value = '', type = 'text', hint, isNeeded = false, isFirst = false, complete = 'off', of, lines }: FieldProps) {
  const shared = { name, required: isNeeded, ...(isFirst ? { 'data-first': true } : {}) };
  return (
    <label class="form-field">
      <span>{label}</span>
      {of ? (
        <select {...shared} defaultValue={value}>
          {of.map((one) => (
            <option key={one} value={one} selected={one === value}>
              {one}
            </option>
          ))}
        </select>
      ) : lines ? (
        <textarea {...shared} rows={lines} spellcheck={false} defaultValue={value} />
      ) : (
        <input {...shared} type={type as 'text'} autocomplete={complete} spellcheck={false} autocapitalize="none" defaultValue={value} />
      )}
      {hint && <small class="soft">{hint}</small>}
    </label>
  );
}

/** A box to tick. */
export const Check = ({ name, label, value = 'yes', isOn = false, onChange }: { name: string; label: string; value?: string; isOn?: boolean; onChange?: (isOn: boolean) => void }) => (
  <label>
    <input type="checkbox" name={name} value={value} defaultChecked={isOn} onChange={(event) => onChange?.(event.currentTarget.checked)} /> {label}
  </label>
);

const MOST_WEIGHT = 1000;

/** A number that is saved when it is changed. After a refusal it shows the number that holds, and the refusal. */
export function Weight({ of, value, onSet }: { of: string; value: number; onSet: (weight: number) => Promise<unknown> }) {
  const [typed, setTyped] = useState<string | null>(null);
  const [problem, setProblem] = useState('');
  // What holds takes the place of what was typed.
  useEffect(() => setTyped(null), [value]);
  const refuse = (sentence: string) => {
    setProblem(sentence);
    setTyped(null);
  };
  const save = (input: HTMLInputElement) => {
    if (!input.value || !input.checkValidity()) return refuse(`A weight is a whole number from 0 to ${MOST_WEIGHT}.`);
    setProblem('');
    onSet(Number(input.value)).then(
      () => say('The weight is changed'),
      (error) => refuse(error instanceof Error ? error.message : String(error)),
    );
  };
  return (
    <>
      <input
        type="number"
        class="weight"
        min={0}
        max={MOST_WEIGHT}
        aria-label={`Weight of ${plain(of)}`}
        aria-invalid={Boolean(problem)}
        value={typed ?? String(value)}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => save(event.currentTarget)}
      />
      {problem && (
        <small class="problem" role="alert">
          {plain(problem)}
        </small>
      )}
    </>
  );
}

/** The lines of a field, without empty ones. */
export const listOf = (text: string | undefined): string[] => (text ?? '').split('\n').map((line) => line.trim()).filter(Boolean);

/** A button that asks before it does something that cannot be undone. */
export function Risky({ label, title, sentence, onDo }: { label: string; title: string; sentence: string; onDo: () => Promise<unknown> }) {
  const [isAsked, setAsked] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setAsked(true)}>
        {label}
      </button>
      {isAsked && (
        <Dialog title={title} class="small" onClose={() => setAsked(false)}>
          <p>{plain(sentence)}</p>
          <div class="dialog-foot">
            <button type="button" data-first onClick={() => setAsked(false)}>
              Cancel
            </button>
            <button
              type="button"
              class="main"
              onClick={() => {
                setAsked(false);
                onDo().catch(complain);
              }}
            >
              {label}
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** Does something, and says that it is done. */
export const doing = (what: Promise<unknown>, done: string, then?: () => void): void => {
  what.then(() => {
    say(done);
    then?.();
  }, complain);
};

/** How a secret gets to its person: by a message of the server, or by hand and why. */
export const delivery = (what: string, email: string, { sent, problem }: { sent?: boolean; problem?: string | null }): string =>
  sent
    ? `A message with the ${what} is on its way to ${email}.`
    : `${problem ? `No message was sent: ${problem.replace(/\.$/, '')}. ` : ''}Give the ${what} to ${email}. It is shown this once.`;

/** A secret that is shown once; none where the server sent it. */
export const Once = ({ title, secret, sentence, onClose }: { title: string; secret: string | null | undefined; sentence: string; onClose: () => void }) => (
  <Dialog title={title} isSteady onClose={onClose}>
    <p>{plain(sentence)}</p>
    {secret && <Copied text={secret} what={title} />}
    <div class="dialog-foot">
      <button type="button" class="main" data-first onClick={onClose}>
        {secret ? 'I have it' : 'Close'}
      </button>
    </div>
  </Dialog>
);
