//! The table of measured ways. Pure: time is an argument.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use sallyport_bus::{WayFigures, WayKind, WayMethod};
use sallyport_ping::{WayRecord, WaySummary};

use super::probe::ProbeOutcome;

/// The most ways: those of all edges, origins and told hosts within their bounds.
const MAX_WAYS: usize = 1_000;

/// A way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WayKey {
    pub(super) kind: WayKind,
    pub(super) to: String,
    pub(super) by: WayMethod,
}

/// The measured ways.
#[derive(Debug, Default)]
pub(super) struct WayTable(BTreeMap<WayKey, MeasuredWay>);

#[derive(Debug, Default)]
struct MeasuredWay {
    record: WayRecord,
    address: Option<SocketAddr>,
    failure: Option<String>,
}

impl WayTable {
    /// Records an outcome. Returns the shortest round trip of the last minutes. A new way is not taken if there are too
    /// many.
    pub(super) fn record(&mut self, key: WayKey, outcome: ProbeOutcome, now: Duration) -> Option<Duration> {
        if self.0.len() >= MAX_WAYS && !self.0.contains_key(&key) {
            return None;
        }
        let way = self.0.entry(key).or_default();
        match outcome {
            Ok((round_trip, address)) => {
                way.record.handle_answer(round_trip, now);
                (way.address, way.failure) = (address, None);
            }
            Err(unmeasured) => {
                if unmeasured.is_lost {
                    way.record.handle_loss();
                }
                way.failure = Some(unmeasured.why);
            }
        }
        way.record.floor(now)
    }

    /// Forgets all ways but these.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&WayKey) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// The figures, in the order of keys.
    pub(super) fn list(&self, now: Duration) -> Vec<WayFigures> {
        self.0.iter().map(|(key, way)| way.figures(key, now)).collect()
    }
}

impl MeasuredWay {
    fn figures(&self, key: &WayKey, now: Duration) -> WayFigures {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let WaySummary { sent, lost, last, recent, recent_lost, spread, floor } = self.record.summary(now);
        // Echo requests go to no port.
        let shown = |address: SocketAddr| match address.port() {
            0 => address.ip().to_string(),
            _ => address.to_string(),
        };
        WayFigures {
            to: key.to.clone(),
            kind: key.kind,
            by: key.by,
            address: self.address.map(shown),
            sent,
            lost,
            recent: recent as u64,
            recent_lost: recent_lost as u64,
            last_us: last.map(us),
            min_us: spread.map(|spread| us(spread.min)),
            median_us: spread.map(|spread| us(spread.median)),
            max_us: spread.map(|spread| us(spread.max)),
            floor_us: floor.map(us),
            failure: self.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::probe::Unmeasured, *};

    const NOW: Duration = Duration::from_secs(5);

    fn key(kind: WayKind, to: &str) -> WayKey {
        WayKey { kind, to: to.to_owned(), by: WayMethod::Tcp }
    }

    #[test]
    fn ways_are_listed_with_told_hosts_first() {
        let mut table = WayTable::default();
        let answer = |ms| Ok((Duration::from_millis(ms), Some("192.0.2.1:443".parse().unwrap())));
        assert_eq!(table.record(key(WayKind::Origin, "o"), answer(9), NOW), Some(Duration::from_millis(9)));
        table.record(key(WayKind::Edge, "e"), answer(7), NOW);
        table.record(key(WayKind::Host, "h"), answer(5), NOW);
        table.record(key(WayKind::Host, "h"), answer(6), NOW);
        let lost = Unmeasured { why: "silence".to_owned(), is_lost: true };
        table.record(key(WayKind::Host, "h"), Err(lost), NOW);
        let listed = table.list(NOW);
        assert_eq!(listed.iter().map(|way| way.to.as_str()).collect::<Vec<_>>(), ["h", "e", "o"]);
        let way = &listed[0];
        assert_eq!((way.sent, way.lost, way.min_us, way.max_us), (3, 1, Some(5_000), Some(6_000)));
        assert_eq!((way.address.as_deref(), way.failure.as_deref()), (Some("192.0.2.1:443"), Some("silence")));
        table.retain(|key| key.kind != WayKind::Host);
        assert_eq!(table.list(NOW).len(), 2);
    }

    #[test]
    fn what_was_not_sent_is_not_lost() {
        let mut table = WayTable::default();
        table.record(key(WayKind::Host, "h"), Err(Unmeasured::not_sent("no such name")), NOW);
        let listed = table.list(NOW);
        assert_eq!((listed[0].sent, listed[0].lost, listed[0].failure.as_deref()), (0, 0, Some("no such name")));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = WayTable::default();
        let answer = || Ok((Duration::from_millis(1), None));
        for number in 0..MAX_WAYS + 10 {
            table.record(key(WayKind::Edge, &number.to_string()), answer(), NOW);
        }
        assert_eq!(table.list(NOW).len(), MAX_WAYS);
        assert!(table.record(key(WayKind::Edge, "1"), answer(), NOW).is_some(), "known ways are still recorded");
    }
}
