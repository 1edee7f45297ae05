//! When the file of `sallyport run` is read again without a signal.
//!
//! The file is polled, because a poll is the same everywhere: a mounted ConfigMap, a network file system and a bind
//! mount of a single file report no changes to the machine that reads them. One look costs one small read. A look finds
//! edits in place, other files of the same name, other targets of a symbolic link, and files that are gone.
//!
//! A file that somebody writes right now is not taken: two looks, at least an interval apart, must find the same.

use std::time::{Duration, Instant};

use super::content::Look;

/// After how many intervals a reload that failed for want of the API is tried again; each time after double the time.
const RETRY_INTERVALS: u32 = 5;
/// The longest time until such a reload is tried again.
const MAX_RETRY_TIME: Duration = Duration::from_secs(300);

/// After how many intervals of changes without rest that is reported.
const RESTLESS_INTERVALS: u32 = 30;

/// Decides from looks when to reload.
#[derive(Debug)]
pub(super) struct Watch {
    interval: Duration,
    /// What the services, or the last reported failure, are of.
    judged: Look,
    /// What differs from it, and since when.
    candidate: Option<(Look, Instant)>,
    /// Since when the file differs without rest; `None` once that was reported.
    restless: Option<Instant>,
    retry: Option<Retry>,
}

/// A reload that is tried again.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Instant,
    /// The time until then.
    after: Duration,
}

/// How a reload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadEnd {
    /// The services are those of the file, or the file must change first.
    Final,
    /// The same file may be taken later.
    MayPassLater,
}

impl Watch {
    /// The services are those of this look.
    pub(super) fn new(judged: Look, interval: Duration) -> Self {
        Self { interval, judged, candidate: None, restless: None, retry: None }
    }

    /// Takes what a look found at the time `now`. Returns what to reload, if anything: the caller reports how that
    /// ended to [`handle_end`](Self::handle_end).
    pub(super) fn handle_look(&mut self, look: Look, now: Instant) -> Option<Look> {
        if look == self.judged {
            self.candidate = None;
            let is_due = self.retry.is_some_and(|retry| now >= retry.at);
            return is_due.then_some(look);
        }
        match &self.candidate {
            Some((former, since)) if *former == look => {
                let is_stable = now.duration_since(*since) >= self.interval;
                is_stable.then_some(look)
            }
            former => {
                if former.is_none() {
                    self.restless = Some(now);
                }
                self.candidate = Some((look, now));
                None
            }
        }
    }

    /// Whether the file changes so often that nothing of it is taken, and nobody was told yet. The caller reports it.
    pub(super) fn take_restless(&mut self, now: Instant) -> bool {
        let is_long = |since: Instant| now.duration_since(since) >= self.interval * RESTLESS_INTERVALS;
        self.candidate.is_some() && self.restless.take_if(|since| is_long(*since)).is_some()
    }

    /// This look was reloaded, whatever asked for that, and the reload ended like this at the time `now`.
    pub(super) fn handle_end(&mut self, look: Look, end: ReloadEnd, now: Instant) {
        let former = self.retry.take().filter(|_| look == self.judged);
        self.judged = look;
        self.candidate = None;
        if end == ReloadEnd::MayPassLater {
            let after = former.map_or(self.interval * RETRY_INTERVALS, |retry| retry.after * 2).min(MAX_RETRY_TIME);
            self.retry = Some(Retry { at: now + after, after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{command::run::content::FileContent, failure::Failure};

    const INTERVAL: Duration = Duration::from_secs(1);

    fn look(text: &str) -> Look {
        Look::of(Ok(FileContent { text: text.into(), is_readable_by_all: false }))
    }

    fn gone() -> Look {
        Look::of(Err(Failure::usage("gone")))
    }

    /// A watch of the content "a", with a clock.
    struct Fixture {
        watch: Watch,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { watch: Watch::new(look("a"), INTERVAL), now: Instant::now() }
        }

        /// What the next look, an interval later, leads to.
        fn then(&mut self, found: &Look) -> bool {
            self.after(INTERVAL, found)
        }

        fn after(&mut self, time: Duration, found: &Look) -> bool {
            self.now += time;
            let reload = self.watch.handle_look(found.clone(), self.now);
            assert!(reload.is_none() || reload.as_ref() == Some(found));
            reload.is_some()
        }

        fn ends(&mut self, found: &Look, end: ReloadEnd) {
            self.watch.handle_end(found.clone(), end, self.now);
        }
    }

    #[test]
    fn a_change_is_taken_once_after_it_was_the_same_for_an_interval() {
        let mut watched = Fixture::new();
        assert!(!watched.then(&look("a")));
        assert!(!watched.then(&look("b")));
        assert!(!watched.after(INTERVAL / 2, &look("b")), "not for a whole interval yet");
        assert!(watched.after(INTERVAL / 2, &look("b")));
        watched.ends(&look("b"), ReloadEnd::Final);
        for _ in 0..1_000 {
            assert!(!watched.then(&look("b")));
        }
    }

    #[test]
    fn a_file_that_grows_is_taken_when_it_is_whole() {
        let mut watched = Fixture::new();
        for length in 2..50 {
            assert!(!watched.then(&look(&"a".repeat(length))), "{length}");
        }
        assert!(watched.then(&look(&"a".repeat(49))));
    }

    #[test]
    fn changes_without_rest_are_reported_once_and_taken_when_they_rest() {
        let mut watched = Fixture::new();
        let reports = |watched: &mut Fixture, from: usize| {
            let count = (from..from + 200).filter(|number| {
                assert!(!watched.then(&look(&number.to_string())));
                watched.watch.take_restless(watched.now)
            });
            count.count()
        };
        assert_eq!(reports(&mut watched, 0), 1);
        assert!(watched.then(&look("199")));
        watched.ends(&look("199"), ReloadEnd::Final);
        assert!((0..200).all(|_| !watched.then(&look("199")) && !watched.watch.take_restless(watched.now)));
        assert_eq!(reports(&mut watched, 1_000), 1, "another time is another matter");
    }

    #[test]
    fn a_change_that_was_taken_back_in_time_is_no_change() {
        let mut watched = Fixture::new();
        assert!(!watched.then(&look("b")));
        assert!(!watched.then(&look("a")));
        assert!(!watched.then(&look("b")), "it differs since now only");
        assert!(!watched.then(&gone()), "and removed and written again it is the same file");
        assert!(!watched.then(&look("a")));
        assert!(!watched.then(&look("a")));
    }

    #[test]
    fn a_missing_file_is_reported_once_and_taken_when_it_is_back() {
        let mut watched = Fixture::new();
        assert!(!watched.then(&gone()));
        assert!(watched.then(&gone()));
        watched.ends(&gone(), ReloadEnd::Final);
        assert!(!watched.then(&gone()));
        assert!(!watched.then(&look("a")));
        assert!(watched.then(&look("a")), "the services are of this file, and people learn that it is taken");
    }

    #[test]
    fn what_a_signal_has_loaded_is_not_loaded_again() {
        let mut watched = Fixture::new();
        assert!(!watched.then(&look("b")));
        watched.ends(&look("b"), ReloadEnd::Final);
        assert!(!watched.then(&look("b")));
        assert!(!watched.then(&look("b")));
    }

    #[test]
    fn a_reload_without_the_api_is_tried_again_ever_more_seldom() {
        let mut watched = Fixture::new();
        watched.then(&look("b"));
        assert!(watched.then(&look("b")));
        watched.ends(&look("b"), ReloadEnd::MayPassLater);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let mut looks = 1;
            while !watched.then(&look("b")) {
                looks += 1;
            }
            waits.push(looks);
            watched.ends(&look("b"), ReloadEnd::MayPassLater);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        // Another file is another matter.
        watched.then(&look("c"));
        assert!(watched.then(&look("c")));
        watched.ends(&look("c"), ReloadEnd::MayPassLater);
        assert!((1..5).all(|_| !watched.then(&look("c"))));
        assert!(watched.then(&look("c")));
        watched.ends(&look("c"), ReloadEnd::Final);
        assert!((0..1_000).all(|_| !watched.then(&look("c"))));
    }
}
