// Loading of what an answer holds, with its state.
import { useEffect, useState } from 'preact/hooks';

/** What was loaded. `failure` says why the last reading failed, and is empty where it did not. */
export type Loaded<T> = { is: 'loading'; failure: '' } | { is: 'there'; value: T; failure: string } | { is: 'failed'; failure: string };

const LOADING = { is: 'loading', failure: '' } as const;

/** Loads when a dependency changes, and keeps what is there until the next good answer of the same subject. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, subject: unknown, revision: unknown = 0): Loaded<T> {
  const [held, setHeld] = useState<{ subject: unknown; loaded: Loaded<T> }>({ subject, loaded: LOADING });
  useEffect(() => {
    const gone = new AbortController();
    load(gone.signal).then(
      (value) => gone.signal.aborted || setHeld({ subject, loaded: { is: 'there', value, failure: '' } }),
      (error) => {
        if (gone.signal.aborted) return;
        const failure = error instanceof Error ? error.message : String(error);
        setHeld(({ subject: before, loaded }) => ({
          subject,
          loaded: before === subject && loaded.is === 'there' ? { ...loaded, failure } : { is: 'failed', failure },
        }));
      },
    );
    return () => gone.abort();
  }, [subject, revision]);
  return held.subject === subject ? held.loaded : LOADING;
}
