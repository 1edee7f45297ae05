//! Reports as changes: an edge leaves out what is as it was in its last whole report.
//!
//! A report with changes names that whole report, which the leader has. It has every entry that differed from it at any
//! time since. So whoever has this or a later whole report, and the last report, knows everything, whatever was lost.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::Duration,
};

use sallyport_model::{OriginRef, SocketId};

use crate::report::{ClassLoad, LoadReport, OriginLoad};

/// After how long the next report is whole.
const WHOLE_PERIOD: Duration = Duration::from_secs(3);

/// The entries of one kind, by what they are about.
#[derive(Debug, Clone)]
struct Entries<K, T> {
    whole: HashMap<K, T>,
    /// The entries that differed from the whole report at any time since.
    changed: HashSet<K>,
}

impl<K: Eq + Hash + Copy, T: PartialEq + Clone> Entries<K, T> {
    fn new(entries: &[T], key: impl Fn(&T) -> K) -> Self {
        let whole = entries.iter().map(|entry| (key(entry), entry.clone())).collect();
        Self { whole, changed: HashSet::new() }
    }

    /// Whether an entry is gone that was there since the whole report.
    fn has_lost(&self, entries: &[T], key: impl Fn(&T) -> K) -> bool {
        let now: HashSet<K> = entries.iter().map(key).collect();
        self.whole.keys().chain(&self.changed).any(|known| !now.contains(known))
    }

    /// Leaves out the entries that never changed.
    fn retain_changed(&mut self, entries: &mut Vec<T>, key: impl Fn(&T) -> K) {
        entries.retain(|entry| {
            let key = key(entry);
            if self.whole.get(&key) != Some(entry) {
                self.changed.insert(key);
            }
            self.changed.contains(&key)
        });
    }
}

/// What an edge has reported as a whole.
#[derive(Debug, Clone)]
struct Whole {
    number: u64,
    at_us: u64,
    classes: Entries<(SocketId, u64), ClassLoad>,
    origins: Entries<(SocketId, OriginRef), OriginLoad>,
}

/// Shortens the reports of one edge.
#[derive(Debug, Clone, Default)]
pub struct ReportDelta {
    /// Oldest first: the one that reports are built upon, and one that the leader may not have yet.
    wholes: Vec<Whole>,
}

impl ReportDelta {
    /// Leaves out what a whole report has. `known` is the number of the last whole report that the leader has; `None`
    /// while no leader is heard. Every three seconds a report stays whole; so do reports for a leader that knows none,
    /// and reports that miss an entry.
    pub fn shorten(&mut self, report: &mut LoadReport, known: Option<u64>) {
        let class = |class: &ClassLoad| (class.socket, class.class);
        let origin = |origin: &OriginLoad| (origin.socket, origin.origin);
        // A report with changes cannot say that an entry is gone.
        self.wholes.retain(|whole| {
            !whole.classes.has_lost(&report.classes, class) && !whole.origins.has_lost(&report.origins, origin)
        });
        let base = known.and_then(|known| self.wholes.iter().rposition(|whole| whole.number <= known));
        self.wholes.drain(..base.unwrap_or(0));
        let age_us = |whole: &Whole| report.at_us.saturating_sub(whole.at_us);
        let is_due = self.wholes.last().is_none_or(|last| u128::from(age_us(last)) >= WHOLE_PERIOD.as_micros());
        if base.is_some() && !is_due {
            let mut whole = report.clone();
            for (at, known) in self.wholes.iter_mut().enumerate() {
                let report = if at == 0 { &mut *report } else { &mut whole };
                known.classes.retain_changed(&mut report.classes, class);
                known.origins.retain_changed(&mut report.origins, origin);
            }
            report.base = self.wholes[0].number;
            return;
        }
        self.wholes.truncate(usize::from(base.is_some()));
        for known in &mut self.wholes {
            let mut whole = report.clone();
            known.classes.retain_changed(&mut whole.classes, class);
            known.origins.retain_changed(&mut whole.origins, origin);
        }
        self.wholes.push(Whole {
            number: report.number,
            at_us: report.at_us,
            classes: Entries::new(&report.classes, class),
            origins: Entries::new(&report.origins, origin),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use sallyport_model::{EdgeId, TunnelId};

    use super::*;
    use crate::quota::AssignmentFollower;

    fn load(id: u8, sent: u64) -> OriginLoad {
        OriginLoad {
            socket: SocketId::from_random([1; 16]),
            origin: TunnelId::from_random([id; 16]).into(),
            sent,
            done: 0,
            failed: 0,
            latency_us: 0,
            open: 0,
            quota: crate::report::Quota::default(),
        }
    }

    /// What a receiver knows: the number of the last whole report, the entries, and the number of the last report.
    #[derive(Default)]
    struct Receiver {
        base: u64,
        loads: BTreeMap<OriginRef, OriginLoad>,
        number: u64,
    }

    impl Receiver {
        /// Whether the report could be used.
        fn take(&mut self, report: &LoadReport) -> bool {
            if report.number <= self.number || report.base > self.base {
                return false;
            }
            if report.base == 0 {
                (self.base, self.loads) = (report.number, BTreeMap::new());
            }
            self.number = report.number;
            self.loads.extend(report.origins.iter().map(|load| (load.origin, *load)));
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Reports and answers are lost, reports overtake each other, entries change, come, go and return to what they were.
        #[test]
        fn whoever_has_a_whole_report_knows_everything(
            steps in prop::collection::vec((0_u8..6, 0_u64..3, 0_u8..4, 0_u64..30), 1..80),
        ) {
            let mut follower = AssignmentFollower::new(EdgeId::from_random([9; 16]), 1);
            let (mut delta, mut receiver, mut now) = (ReportDelta::default(), Receiver::default(), Duration::ZERO);
            let (mut loads, mut known, mut late) = (BTreeMap::new(), None, None);
            for (id, sent, fate, event) in steps {
                now += Duration::from_millis(700);
                loads.insert(id, load(id, sent));
                if event == 0 {
                    loads.remove(&((id + 1) % 6));
                }
                let mut report = follower.begin_report(now);
                report.origins = loads.values().copied().collect();
                delta.shorten(&mut report, known.filter(|_| event != 1));
                let mut arriving = Vec::new();
                match fate {
                    0 => {}
                    1 => late = Some((report, loads.clone())),
                    _ => {
                        arriving.push((report, loads.clone()));
                        arriving.extend(late.take());
                    }
                }
                for (report, loads) in arriving {
                    if receiver.take(&report) {
                        let has: Vec<_> = receiver.loads.values().map(|load| (load.origin, load.sent)).collect();
                        let mut had: Vec<_> = loads.values().map(|load| (load.origin, load.sent)).collect();
                        had.sort_unstable();
                        prop_assert_eq!(has, had);
                    }
                    if fate == 3 && receiver.base > 0 {
                        known = Some(receiver.base);
                    }
                }
            }
        }
    }

    #[test]
    fn idle_entries_are_left_out_and_a_new_leader_gets_everything() {
        let mut follower = AssignmentFollower::new(EdgeId::from_random([9; 16]), 1);
        let mut delta = ReportDelta::default();
        let mut next = |ms: u64, known: Option<u64>| {
            let mut report = follower.begin_report(Duration::from_millis(ms));
            report.origins = (0..100).map(|id| load(id, u64::from(id == 7) * ms)).collect();
            delta.shorten(&mut report, known);
            (report.base, report.origins.len())
        };
        assert_eq!(next(0, None), (0, 100));
        assert_eq!(next(1_000, Some(1)), (1, 1));
        assert_eq!(next(2_000, None), (0, 100), "no leader is heard");
        assert_eq!(next(3_000, Some(3)), (3, 1));
        assert_eq!(next(5_000, Some(3)), (0, 100), "the whole report is old");
        assert_eq!(next(6_000, Some(3)), (3, 1), "the leader may not have the next one");
        assert_eq!(next(7_000, Some(5)), (5, 1));
        assert_eq!(next(7_500, Some(1)), (0, 100), "another leader has an older one");
    }
}
