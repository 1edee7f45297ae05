//! Distance of origins as seen from one edge: the local edge first, then the region, then the region with the shortest
//! round trip.

use std::time::Duration;

/// Distance of an origin; `R` names a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Nearness<R> {
    /// At this edge.
    Here,
    /// At another edge of this edge's region.
    Near,
    /// In another region.
    Far(R),
}

impl<R> Nearness<R> {
    /// Sort key: first the kind of distance, then the round trip to other regions, where an unmeasured one comes last.
    fn distance(&self, round_trip: Option<Duration>) -> (u8, Duration) {
        match self {
            Self::Here => (0, Duration::ZERO),
            Self::Near => (1, Duration::ZERO),
            Self::Far(_) => (2, round_trip.unwrap_or(Duration::MAX)),
        }
    }
}

/// The nearest of the candidates, each with its round trip if measured; `None` without candidates. Among other regions
/// the one with the shortest round trip wins, and the first by name among equals.
pub fn nearest<R: Ord>(candidates: impl IntoIterator<Item = (Nearness<R>, Option<Duration>)>) -> Option<Nearness<R>> {
    let with_distance = candidates.into_iter().map(|(nearness, rtt)| (nearness.distance(rtt), nearness));
    with_distance.min().map(|(_, nearness)| nearness)
}

/// Compares two ways to the same origin. The way through the nearer end is better; in other regions a way that starts
/// at this edge (`is_local`), else the shorter one.
#[must_use]
pub fn compare_ways<R: Ord>(
    one: (&Nearness<R>, bool, Option<Duration>),
    other: (&Nearness<R>, bool, Option<Duration>),
) -> std::cmp::Ordering {
    let key = |(nearness, is_local, rtt): (&Nearness<R>, bool, Option<Duration>)| {
        (nearness.distance(None), !is_local, rtt.unwrap_or(Duration::MAX))
    };
    key(one).cmp(&key(other)).then_with(|| one.0.cmp(other.0))
}

#[cfg(test)]
mod tests {
    use super::{Nearness::*, *};

    const fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    #[test]
    fn the_local_one_comes_first_then_the_region_then_the_shortest_way() {
        for (candidates, chosen) in [
            (&[(Far("us"), ms(1)), (Near, ms(90)), (Here, ms(300))][..], Some(Here)),
            (&[(Far("us"), ms(1)), (Near, None)], Some(Near)),
            (&[(Far("us"), ms(80)), (Far("ap"), ms(200)), (Far("sa"), ms(120))], Some(Far("us"))),
            (&[(Far("us"), ms(80)), (Far("ap"), ms(200)), (Far("ap"), ms(70))], Some(Far("ap"))),
            (&[(Far("us"), None), (Far("ap"), ms(900))], Some(Far("ap"))),
            (&[(Far("us"), None), (Far("ap"), None)], Some(Far("ap"))),
            (&[], None),
        ] {
            assert_eq!(nearest(candidates.iter().copied()), chosen, "{candidates:?}");
        }
    }

    #[test]
    fn of_several_ways_to_one_origin_the_shortest_is_the_best() {
        use std::cmp::Ordering::{Greater, Less};
        for (one, other, order) in [
            ((Near, false, ms(5)), (Far("us"), false, ms(1)), Less),
            ((Far("us"), true, ms(100)), (Far("us"), false, ms(90)), Less),
            ((Far("us"), false, ms(100)), (Far("us"), false, ms(90)), Greater),
            ((Near, false, None), (Near, false, ms(9)), Greater),
            ((Here, true, None), (Near, false, ms(1)), Less),
        ] {
            let (one, other) = ((&one.0, one.1, one.2), (&other.0, other.1, other.2));
            assert_eq!(compare_ways(one, other), order, "{one:?} {other:?}");
            assert_eq!(compare_ways(other, one), order.reverse(), "{one:?} {other:?}");
        }
    }
}
