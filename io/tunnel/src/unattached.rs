//! Bounds on sessions without an attached tunnel, which anybody can create.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
};

use crate::SessionId;

/// Bound on sessions without an attachment, from all addresses.
const MAX_UNATTACHED_SESSIONS: usize = 4_096;
/// Bound on sessions without an attachment from one address. Beyond it the oldest is closed. An honest session attaches
/// within a round trip, so that silent ones only displace one another.
const MAX_UNATTACHED_SESSIONS_PER_ADDRESS: usize = 256;

/// The sessions without an attachment, by address.
#[derive(Debug, Default)]
pub(crate) struct Unattached {
    by_party: HashMap<IpAddr, VecDeque<SessionId>>,
    total: usize,
}

impl Unattached {
    /// Number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.total
    }

    /// Adds a session; returns the one that has to be closed in exchange.
    pub(crate) fn enter(&mut self, address: IpAddr, session: SessionId) -> Option<SessionId> {
        let party = party(address);
        let crowded = if self.by_party.get(&party).map_or(0, VecDeque::len) >= MAX_UNATTACHED_SESSIONS_PER_ADDRESS {
            Some(party)
        } else if self.total >= MAX_UNATTACHED_SESSIONS {
            self.by_party.iter().max_by_key(|(_, sessions)| sessions.len()).map(|(party, _)| *party)
        } else {
            None
        };
        let oldest = crowded.and_then(|crowded| self.by_party.get(&crowded)?.front().copied().map(|id| (crowded, id)));
        if let Some((crowded, id)) = oldest {
            self.leave_party(crowded, id);
        }
        self.by_party.entry(party).or_default().push_back(session);
        self.total += 1;
        oldest.map(|(_, id)| id)
    }

    /// Removes a session. Returns whether it was present.
    pub(crate) fn leave(&mut self, address: IpAddr, session: SessionId) -> bool {
        self.leave_party(party(address), session)
    }

    /// Whether the session has no attachment.
    pub(crate) fn contains(&self, address: IpAddr, session: SessionId) -> bool {
        self.by_party.get(&party(address)).is_some_and(|sessions| sessions.contains(&session))
    }

    fn leave_party(&mut self, party: IpAddr, session: SessionId) -> bool {
        let Some(sessions) = self.by_party.get_mut(&party) else { return false };
        let removed = sessions.iter().position(|id| *id == session).and_then(|at| sessions.remove(at)).is_some();
        if sessions.is_empty() {
            self.by_party.remove(&party);
        }
        self.total -= usize::from(removed);
        removed
    }
}

/// The part of an address that one party controls: a whole IPv4 address, or the first 64 bits of an IPv6 address.
fn party(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX))),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> SessionId {
        SessionId((number as u128).to_be_bytes())
    }

    #[test]
    fn an_address_pushes_out_only_its_own_oldest() {
        let mut unattached = Unattached::default();
        let (one, other): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        assert_eq!(unattached.enter(other, id(0)), None);
        for number in 1..=MAX_UNATTACHED_SESSIONS_PER_ADDRESS {
            assert_eq!(unattached.enter(one, id(number)), None);
        }
        let neighbour = "2001:db8::2".parse().unwrap();
        assert_eq!(unattached.enter(neighbour, id(9_999)), Some(id(1)), "a /64 is one party");
        assert!(unattached.contains(other, id(0)));
        assert_eq!(unattached.len(), MAX_UNATTACHED_SESSIONS_PER_ADDRESS + 1);
        assert!(unattached.leave(other, id(0)) && !unattached.leave(other, id(0)));
        assert_eq!(unattached.len(), MAX_UNATTACHED_SESSIONS_PER_ADDRESS);
    }

    #[test]
    fn when_there_are_too_many_in_all_the_busiest_address_loses_one() {
        let mut unattached = Unattached::default();
        let address = |number: usize| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        for number in 0..MAX_UNATTACHED_SESSIONS - 1 {
            assert_eq!(unattached.enter(address(number), id(number)), None);
        }
        assert_eq!(unattached.enter(address(7), id(70_000)), None);
        assert_eq!(unattached.enter(address(60_000), id(80_000)), Some(id(7)));
        assert_eq!(unattached.len(), MAX_UNATTACHED_SESSIONS);
    }
}
