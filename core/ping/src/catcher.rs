//! Echo requests whose replies come to several machines: each counts those that come to it.
//!
//! All machines have the same key and the same list of targets. One sends the requests, from an address that all of
//! them have. Nothing is kept of a request: a reply proves itself by its token, which is of one target alone.

use std::net::IpAddr;

use crate::{
    packet::{self, Family, Form},
    token::{self, Key, MIN_DATA_BYTES},
};

/// The most targets of one list.
pub const MAX_TARGETS: usize = 65_536;

/// What came of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caught {
    /// The first right reply of the target with this number.
    Counted(usize),
    /// A right reply that came before.
    Duplicate,
    /// A message with the identifier of these requests that no target has sent in reply.
    Forged,
    /// A message of others, or of another kind.
    Foreign,
}

/// How many messages of each kind came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaughtCounts {
    /// Replies that count.
    pub counted: u64,
    /// Right replies that came again.
    pub duplicates: u64,
    /// Messages that no target has sent in reply.
    pub forged: u64,
}

/// The replies of one measurement that come to one machine.
#[derive(Debug)]
pub struct Catcher {
    family: Family,
    identifier: u16,
    key: Key,
    targets: Vec<IpAddr>,
    has_replied: Vec<bool>,
    counts: CaughtCounts,
}

impl Catcher {
    /// No target yet.
    #[must_use]
    pub fn new(family: Family, identifier: u16, key: Key) -> Self {
        let counts = CaughtCounts::default();
        Self { family, identifier, key, targets: Vec::new(), has_replied: Vec::new(), counts }
    }

    /// Adds a target. Returns `false` if it is of the other family, or if there are [`MAX_TARGETS`] already.
    pub fn add(&mut self, target: IpAddr) -> bool {
        let target = target.to_canonical();
        let fits = Family::of(target) == self.family && self.targets.len() < MAX_TARGETS;
        if fits {
            self.targets.push(target);
            self.has_replied.push(false);
        }
        fits
    }

    /// The targets, by their numbers.
    #[must_use]
    pub fn targets(&self) -> &[IpAddr] {
        &self.targets
    }

    /// Whether the target with this number has replied to this machine.
    #[must_use]
    pub fn has_replied(&self, number: usize) -> bool {
        self.has_replied.get(number).copied().unwrap_or_default()
    }

    /// How many messages came.
    #[must_use]
    pub fn counts(&self) -> CaughtCounts {
        self.counts
    }

    /// The request to the target with this number. A reply is as long as its request.
    #[must_use]
    pub fn request(&self, number: usize) -> Option<(IpAddr, Vec<u8>)> {
        let target = *self.targets.get(number)?;
        let (sequence, nonce) = (number as u16, nonce_of(number));
        let data = self.key.data(self.identifier, sequence, nonce, MIN_DATA_BYTES);
        Some((target, packet::request(self.family, self.identifier, sequence, &data)))
    }

    /// Takes a message that this machine has received.
    pub fn handle_received(&mut self, from: IpAddr, form: Form, bytes: &[u8]) -> Caught {
        let caught = self.judge(from.to_canonical(), form, bytes);
        match caught {
            Caught::Counted(number) => {
                self.has_replied[number] = true;
                self.counts.counted += 1;
            }
            Caught::Duplicate => self.counts.duplicates += 1,
            Caught::Forged => self.counts.forged += 1,
            Caught::Foreign => {}
        }
        caught
    }

    fn judge(&self, from: IpAddr, form: Form, bytes: &[u8]) -> Caught {
        let message = match packet::parse(self.family, form, bytes) {
            Ok(message) if message.identifier == self.identifier => message,
            Err(packet::Malformed::CutOff { identifier } | packet::Malformed::Checksum { identifier })
                if identifier == self.identifier =>
            {
                return Caught::Forged;
            }
            _ => return Caught::Foreign,
        };
        let nonce = self.key.nonce(message.identifier, message.sequence, message.data);
        let number = nonce.and_then(|nonce| usize::try_from(nonce).ok());
        let is_right = |number: &usize| {
            self.targets.get(*number) == Some(&from)
                && *number as u16 == message.sequence
                && message.data.len() == token::MIN_DATA_BYTES
        };
        match number.filter(is_right) {
            Some(number) if self.has_replied(number) => Caught::Duplicate,
            Some(number) => Caught::Counted(number),
            None => Caught::Forged,
        }
    }
}

fn nonce_of(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{HEADER_BYTES, reply};

    const IDENTIFIER: u16 = 0x4321;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn catcher(key: u8) -> Catcher {
        let mut catcher = Catcher::new(Family::V4, IDENTIFIER, Key::new([key; 16]));
        assert!((1..=3).all(|last| catcher.add(ip(last))));
        catcher
    }

    /// The reply to the request with this number.
    fn reply_to(catcher: &Catcher, number: usize) -> Vec<u8> {
        let (_, request) = catcher.request(number).unwrap();
        reply(Family::V4, IDENTIFIER, u16::from_be_bytes([request[6], request[7]]), &request[HEADER_BYTES..])
    }

    #[test]
    fn another_machine_with_the_same_key_counts_each_target_once() {
        let (sender, mut other) = (catcher(1), catcher(1));
        assert_eq!(other.handle_received(ip(2), Form::Verified, &reply_to(&sender, 1)), Caught::Counted(1));
        assert_eq!(other.handle_received(ip(2), Form::Verified, &reply_to(&sender, 1)), Caught::Duplicate);
        assert_eq!(other.handle_received(ip(3), Form::Verified, &reply_to(&sender, 2)), Caught::Counted(2));
        assert!(!other.has_replied(0) && other.has_replied(1) && other.has_replied(2) && !other.has_replied(3));
        assert_eq!(other.counts(), CaughtCounts { counted: 2, duplicates: 1, forged: 0 });
        assert_eq!(sender.request(3), None);
    }

    #[test]
    fn nobody_replies_for_others_or_without_a_request() {
        let mut here = catcher(1);
        let right = reply_to(&here, 1);
        let mut forged = 0;
        // From another target and a stranger, of another measurement, and with each byte changed.
        for (from, bytes) in [(ip(1), right.clone()), (ip(9), right.clone()), (ip(2), reply_to(&catcher(2), 1))] {
            assert_eq!(here.handle_received(from, Form::Verified, &bytes), Caught::Forged);
            forged += 1;
        }
        for at in 6..right.len() {
            let mut changed = right.clone();
            changed[at] ^= 0x20;
            assert_eq!(here.handle_received(ip(2), Form::Verified, &changed), Caught::Forged, "byte {at}");
            assert_eq!(here.handle_received(ip(2), Form::Verified, &right[..at]), Caught::Forged, "{at} bytes");
            forged += 2;
        }
        let longer = [&right[..], &[0]].concat();
        assert_eq!(here.handle_received(ip(2), Form::Verified, &longer), Caught::Forged);
        let mut of_others = right.clone();
        of_others[4] ^= 1;
        assert_eq!(here.handle_received(ip(2), Form::Verified, &of_others), Caught::Foreign);
        assert_eq!(here.handle_received(ip(2), Form::Verified, &here.request(1).unwrap().1), Caught::Foreign);
        assert_eq!(here.counts(), CaughtCounts { counted: 0, duplicates: 0, forged: forged + 1 });
        assert_eq!(here.handle_received(ip(2), Form::Verified, &right), Caught::Counted(1));
    }

    #[test]
    fn targets_are_bounded_and_of_one_family() {
        let mut catcher = Catcher::new(Family::V6, 1, Key::new([1; 16]));
        assert!(!catcher.add(ip(1)) && !catcher.add("::ffff:192.0.2.1".parse().unwrap()));
        for _ in 0..MAX_TARGETS {
            assert!(catcher.add("2001:db8::1".parse().unwrap()));
        }
        assert!(!catcher.add("2001:db8::1".parse().unwrap()));
        assert_eq!(catcher.targets().len(), MAX_TARGETS);
    }

    #[test]
    fn a_reply_is_as_long_as_its_request() {
        let sender = catcher(1);
        assert_eq!(sender.request(0).unwrap().1.len(), reply_to(&sender, 0).len());
    }
}
