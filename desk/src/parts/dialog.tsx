// A dialog above the page: the browser keeps the focus inside, and gives it back.
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { Icon } from './icon';

interface Props {
  title: string;
  class?: string;
  /** Whether a press beside it leaves it open, so that what was written stays. */
  isSteady?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, class: name = '', isSteady = false, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    dialog.querySelector<HTMLElement>('[data-first]')?.focus();
    return () => {
      dialog.close();
      before?.focus({ preventScroll: true });
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={`dialog ${name}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => !isSteady && event.target === element.current && onClose()}
    >
      <div class="dialog-in">
        <header class="dialog-head">
          <h2 id={id}>{title}</h2>
          <button type="button" class="icon" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
