// The dialogs of the page, one at a time: questions, the comparison and the keys.
import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import type { DiffLine, DiffSection } from '../api/wire';
import { lines, plain } from '../parts/format';
import { Dialog } from '../parts/dialog';
import { useLoaded } from '../parts/use';
import { clear } from './actions';
import { Editor } from './editor';
import { asking, compared, editing, exchange, isClearAsked, isHelpShown, total } from './store';

function Question({ title, text, go, label, onClose }: { title: string; text: string; go: () => Promise<void>; label: string; onClose: () => void }) {
  const isBusy = useSignal(false);
  return (
    <Dialog title={title} class="small" onClose={onClose}>
      <p>{text}</p>
      <div class="dialog-foot">
        <button type="button" onClick={onClose} data-first>
          Cancel
        </button>
        <button
          type="button"
          class="main"
          disabled={isBusy.value}
          onClick={async () => {
            isBusy.value = true;
            await go();
            onClose();
          }}
        >
          {label}
        </button>
      </div>
    </Dialog>
  );
}

const CONTEXT = 3;
const MAX_LINES = 2000;
const MARKS = { same: ' ', removed: '−', added: '+' };
const NAMES = { same: '', removed: 'Removed: ', added: 'Added: ' };

/** Long runs of equal lines are folded away. */
function folded(all: DiffLine[]): (DiffLine | number)[] {
  const isNear = (at: number) =>
    all.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1).some(({ op }) => op !== 'same');
  const out: (DiffLine | number)[] = [];
  all.forEach((line, at) => {
    const last = out.at(-1);
    if (line.op !== 'same' || isNear(at)) out.push(line);
    else if (typeof last === 'number') out[out.length - 1] = last + 1;
    else out.push(1);
  });
  return out;
}

function Comparison({ pair: [a, b] }: { pair: [number, number] }) {
  const loaded = useLoaded((signal) => api.diff(a, b, signal), `${a} ${b}`);
  const sections = loaded.is === 'there' ? loaded.value.sections : [];
  const isEqual = (section: DiffSection) => section.lines.every(({ op }) => op === 'same');
  const equal = sections.filter(isEqual).map(({ title }) => plain(title));
  const title = (id: number) => `#${id} ${plain(exchange(id)?.method ?? '')} ${plain(exchange(id)?.path ?? '')}`;
  return (
    <Dialog title={`Comparison of #${a} and #${b}`} class="large" onClose={() => (compared.value = null)}>
      <p class="diff-names">
        <span class="removed">{MARKS.removed} {title(a)}</span>
        <span class="added">{MARKS.added} {title(b)}</span>
      </p>
      {loaded.failure && <p class="note-line bad">{loaded.failure}</p>}
      {loaded.is === 'there' && equal.length === sections.length && <p class="note-line">Both are equal.</p>}
      {sections
        .filter((section) => !isEqual(section))
        .map((section) => (
          <section key={section.title}>
            <h3>{plain(section.title)}</h3>
            {folded(section.lines).length > MAX_LINES && <p class="note-line">The first {MAX_LINES} lines are shown.</p>}
            <div class="code diff" role="group" aria-label={section.title}>
              {folded(section.lines).slice(0, MAX_LINES).map((line, at) =>
                typeof line === 'number' ? (
                  <div key={at} class="gap">{line} equal {line === 1 ? 'line' : 'lines'}</div>
                ) : (
                  <div key={at} class={line.op}>
                    <span class="mark" aria-hidden="true">{MARKS[line.op]}</span>
                    <span class="unseen">{NAMES[line.op]}</span>
                    {lines(line.text)}
                  </div>
                ),
              )}
            </div>
          </section>
        ))}
      {equal.length > 0 && equal.length < sections.length && <p class="note-line">Equal: {equal.join(', ')}.</p>}
    </Dialog>
  );
}

const KEYS: [string, string][] = [
  ['j k ↓ ↑', 'next and previous request'],
  ['g G', 'newest and oldest request'],
  ['Enter', 'open the details'],
  ['Esc', 'back to the list'],
  ['1 2 3 4', 'the tabs of the details'],
  ['/', 'filter'],
  ['r', 'replay'],
  ['e', 'edit and replay'],
  ['c', 'copy as curl'],
  ['d', 'mark, and compare with the marked one'],
  ['?', 'this list'],
];

function Help() {
  return (
    <Dialog title="Keys" class="small" onClose={() => (isHelpShown.value = false)}>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys}>
            <dt>{keys.split(' ').map((name) => <kbd key={name}>{name}</kbd>)}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

export const isDialogOpen = (): boolean =>
  asking.value !== null || editing.value !== null || compared.value !== null || isHelpShown.value || isClearAsked.value;

export function Dialogs() {
  const question = asking.value;
  return (
    <>
      {editing.value !== null && <Editor id={editing.value} />}
      {compared.value && <Comparison pair={compared.value} />}
      {isHelpShown.value && <Help />}
      {isClearAsked.value && (
        <Question
          title="Clear all requests?"
          text={`${total.value} requests with their bodies are forgotten, here and in the program.`}
          label="Clear"
          go={clear}
          onClose={() => (isClearAsked.value = false)}
        />
      )}
      {question && (
        <Question
          title="Send it again?"
          text={question.sentence}
          label="Send again"
          go={question.go}
          onClose={() => {
            question.stop();
            asking.value = null;
          }}
        />
      )}
    </>
  );
}
