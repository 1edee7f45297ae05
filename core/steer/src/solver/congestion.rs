//! The cost of load: free up to 60 % of a capacity, then rising in steps.
//!
//! The steps keep some room at an origin while another one is hardly farther. They are small against the way to another
//! region, so that an origin is filled before its neighbour's traffic crosses an ocean. The cost depends on the planned
//! load alone, never on a measured latency: a cost that rises with measured load makes plans swing (ARPANET's delay
//! metric, doi 10.1145/75247.75252).

/// Number of segments with a slope.
pub const SEGMENTS: usize = 8;
/// The part of a capacity that is free, in percent.
const FREE_PERCENT: u64 = 60;
/// The additional cost of a unit in each segment of 5 %, in microseconds.
const SLOPES: [i64; SEGMENTS] = [500, 1_000, 2_000, 3_000, 5_000, 8_000, 12_000, 20_000];

/// A part of a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The load at which it ends.
    pub end: u64,
    /// The additional cost of a unit in it.
    pub slope: i64,
}

/// The segments of a capacity, in order; the last one ends at the capacity.
#[must_use]
pub fn segments(capacity: u64) -> [Segment; SEGMENTS + 1] {
    let mut all = [Segment { end: capacity * FREE_PERCENT / 100, slope: 0 }; SEGMENTS + 1];
    for (number, (segment, slope)) in all.iter_mut().skip(1).zip(SLOPES).enumerate() {
        let percent = FREE_PERCENT + (100 - FREE_PERCENT) * (number as u64 + 1) / SEGMENTS as u64;
        *segment = Segment { end: capacity * percent / 100, slope };
    }
    all
}

/// The segment for the next unit at this load: its slope, and the room that is left in it; `None` if the node is full.
pub(super) fn next_segment(capacity: Option<u64>, load: u64) -> Option<(i64, u64)> {
    let Some(capacity) = capacity else { return Some((0, u64::MAX)) };
    let segment = segments(capacity).into_iter().find(|segment| segment.end > load)?;
    Some((segment.slope, segment.end - load))
}

/// The segment of the last unit at this load: its slope, and how much of it is used; `None` if the load is 0.
pub(super) fn last_segment(capacity: Option<u64>, load: u64) -> Option<(i64, u64)> {
    if load == 0 {
        return None;
    }
    let Some(capacity) = capacity else { return Some((0, load)) };
    let mut start = 0;
    for segment in segments(capacity) {
        if load <= segment.end {
            return Some((segment.slope, load - start));
        }
        start = segment.end;
    }
    None
}

/// The cost of a load.
pub(super) fn load_cost(capacity: Option<u64>, load: u64) -> i128 {
    let Some(capacity) = capacity else { return 0 };
    let (mut cost, mut start) = (0, 0);
    for segment in segments(capacity) {
        let used = load.min(segment.end).saturating_sub(start);
        cost += i128::from(used) * i128::from(segment.slope);
        start = segment.end;
    }
    cost
}
