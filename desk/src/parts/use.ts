// Loading of what an answer holds, with its state.
import { useEffect, useState } from 'preact/hooks';

export type Loaded<T> = { is: 'loading' } | { is: 'there'; value: T } | { is: 'failed'; sentence: string };

/** Loads when a dependency changes, and keeps what is there until the next answer of the same subject. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, subject: unknown, revision: unknown = 0): Loaded<T> {
  const [held, setHeld] = useState<{ subject: unknown; loaded: Loaded<T> }>({ subject, loaded: { is: 'loading' } });
  useEffect(() => {
    const gone = new AbortController();
    load(gone.signal).then(
      (value) => gone.signal.aborted || setHeld({ subject, loaded: { is: 'there', value } }),
      (error) => {
        if (gone.signal.aborted) return;
        setHeld({ subject, loaded: { is: 'failed', sentence: error instanceof Error ? error.message : String(error) } });
      },
    );
    return () => gone.abort();
  }, [subject, revision]);
  return held.subject === subject ? held.loaded : { is: 'loading' };
}
