//! The slot table of a set of edges: two columns, the first and the second edge of each slot.
//!
//! Every slot ranks the edges by a hash of both (rendezvous hashing, weighted). So the table depends on the edges
//! alone, and all balancers of a site have the same one without speaking with each other. An edge that comes takes its
//! slots from their first edges, which become the second ones. Of an edge that drains, the first becomes the second.

use std::net::IpAddr;

use super::EdgeState;
use crate::parse::mix_words;

/// Slots of a table: a power of two.
pub const POOL_SLOTS: usize = 1 << 14;

/// The first and the second edge of a slot, by their numbers; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// The edge that gets the packet.
    pub first: u16,
    /// The edge that gets it next, if the first has no such connection.
    pub second: u16,
}

impl Slot {
    /// The cell of the map: the first edge in the low half.
    #[must_use]
    pub fn cell(self) -> u32 {
        u32::from(self.first) | u32::from(self.second) << 16
    }
}

/// An edge in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its number, from 1 on.
    pub number: u16,
    /// Its address, by which slots rank it.
    pub address: IpAddr,
    /// Its share, from 1 on.
    pub weight: u16,
    /// Its state.
    pub state: EdgeState,
}

/// The slots for these edges. Edges that drain get flows alone if no edge serves.
#[must_use]
pub fn fill_slots(members: &[Member]) -> Vec<Slot> {
    let mut members: Vec<_> = members.iter().filter(|member| member.state != EdgeState::Down).collect();
    members.sort_by_key(|member| member.address);
    let serves = members.iter().any(|member| member.state == EdgeState::Serving);
    let may_be_first = |member: &Member| !serves || member.state == EdgeState::Serving;
    let names: Vec<_> = members.iter().map(|member| name_of(member.address)).collect();
    let slot = |slot: usize| {
        let distance = |at: usize| distance(names[at], slot, members[at].weight);
        let mut best: [Option<(f64, usize)>; 3] = [None; 3];
        let mut first: Option<(f64, usize)> = None;
        for (at, member) in members.iter().enumerate() {
            let mut found = Some((distance(at), at));
            if may_be_first(member) && is_nearer(found, first) {
                first = found;
            }
            for place in &mut best {
                if is_nearer(found, *place) {
                    std::mem::swap(place, &mut found);
                }
            }
        }
        let number = |found: Option<(f64, usize)>| found.map_or(0, |(_, at)| members[at].number);
        let second = best.into_iter().find(|found| found.map(|found| found.1) != first.map(|first| first.1)).flatten();
        Slot { first: number(first), second: number(second) }
    };
    (0..POOL_SLOTS).map(slot).collect()
}

/// The hash of an address of an edge.
fn name_of(address: IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let words = [96, 64, 32, 0].map(|shift| (bits >> shift & 0xffff_ffff) as u32);
    u64::from(mix_words(&words, 1)) << 32 | u64::from(mix_words(&words, 2))
}

/// How far an edge is from a slot: an exponential variable, whose rate is the weight. The nearest one has the slot.
fn distance(name: u64, slot: usize, weight: u16) -> f64 {
    let mut hash = name ^ (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() / f64::from(weight.max(1))
}

fn is_nearer(found: Option<(f64, usize)>, than: Option<(f64, usize)>) -> bool {
    match (found, than) {
        (Some(found), Some(than)) => found.0.total_cmp(&than.0).then(found.1.cmp(&than.1)).is_lt(),
        (found, None) => found.is_some(),
        (None, _) => false,
    }
}
