//! The shield against floods: packet/bpf/bucket.h, limit.h and syncookie.h as pure functions of a clock.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use super::{Arrival, arrival::IP_OFFSET};
use crate::{
    checksum,
    parse::{TCP, Tcp, bytes, word},
};

/// The largest limit, in packets a second.
pub const MAX_RATE: u32 = 100_000_000;
/// The most sources that a balancer remembers.
pub const MAX_SOURCES: u32 = 1 << 22;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// What an answer with a cookie lets the client send before it hears of the server.
const ANSWER_WINDOW: u16 = 29_200;
/// Bytes of the header of TCP of an answer, with the option of the largest segment.
const ANSWER_TCP: usize = 24;
/// The time to live of answers.
const ANSWER_TTL: u8 = 64;

/// A limit: a bucket with the tokens of one second, which is filled at this rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds between two packets.
    pub interval: u64,
    /// How far ahead of the clock the time may be at which the bucket is full again.
    pub ahead: u64,
}

impl Rate {
    /// So many packets a second, and as many at once. 0 counts as 1.
    #[must_use]
    pub fn per_second(packets: u32) -> Self {
        let packets = u64::from(packets.max(1));
        let interval = (SECOND / packets).max(1);
        Self { interval, ahead: (packets - 1) * interval }
    }
}

/// A bucket of tokens, kept as the time at which it is full again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket(u64);

impl Bucket {
    /// Takes a token, if there is one.
    pub fn take(&mut self, rate: Rate, now: Duration) -> bool {
        let now = nanoseconds(now);
        let start = self.0.max(now);
        let has_token = start - now <= rate.ahead;
        if has_token {
            self.0 = start + rate.interval;
        }
        has_token
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// What one source may send, each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Packets.
    pub packets: Option<Rate>,
    /// New connections: SYNs.
    pub connections: Option<Rate>,
    /// The most sources that are remembered.
    pub sources: u32,
}

impl Limits {
    /// Whether anything is limited.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.packets.is_some() || self.connections.is_some()
    }
}

/// The buckets of sources.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    buckets: HashMap<IpAddr, SourceBuckets>,
    turn: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct SourceBuckets {
    packets: Bucket,
    connections: Bucket,
    /// The last use, for the oldest goes first.
    turn: u64,
}

impl Sources {
    /// Whether a packet is within the limits of its source. An error counts for the client that it is about.
    pub fn admit(&mut self, arrival: &Arrival, limits: &Limits, now: Duration) -> bool {
        if !limits.is_on() {
            return true;
        }
        let source = source_of(arrival.flow.source);
        if self.buckets.len() >= limits.sources as usize && !self.buckets.contains_key(&source) {
            let oldest = self.buckets.iter().min_by_key(|entry| entry.1.turn).map(|entry| *entry.0);
            oldest.map(|oldest| self.buckets.remove(&oldest));
        }
        self.turn += 1;
        let found = self.buckets.entry(source).or_default();
        found.turn = self.turn;
        let take = |bucket: &mut Bucket, rate: Option<Rate>| rate.is_none_or(|rate| bucket.take(rate, now));
        take(&mut found.packets, limits.packets)
            && (!arrival.is_new() || take(&mut found.connections, limits.connections))
    }
}

/// What counts as one source: an address of IPv4, or a network of IPv6 with a prefix of 64 bits.
#[must_use]
pub fn source_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => ((u128::from(v6) >> 64) << 64).to_be_bytes().into(),
    }
}

/// The SYNs that an edge gives its kernel. It answers the others itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynCookies {
    rate: Rate,
    bucket: Bucket,
}

impl SynCookies {
    /// So many SYNs a second for the kernel.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self { rate: Rate::per_second(per_second), bucket: Bucket::default() }
    }

    /// Whether a packet gets a cookie, if a socket listens for it.
    pub fn answers(&mut self, arrival: &Arrival, now: Duration) -> bool {
        arrival.flow.protocol == TCP
            && !arrival.is_error
            && !arrival.is_fragment
            && arrival.flags & (Tcp::SYN | Tcp::ACK | Tcp::RST) == Tcp::SYN
            && !self.bucket.take(self.rate, now)
    }
}

/// The answer to a frame with a SYN: a SYN that acknowledges, with the kernel's cookie and the largest segment of it.
/// The addresses of the link are as they came. `None` if the frame has no such packet.
#[must_use]
pub fn syn_cookie_answer(frame: &[u8], cookie: u32, segment: u16) -> Option<Vec<u8>> {
    let arrival = Arrival::read(frame).ok().filter(Arrival::is_new)?;
    let (client, server) = (arrival.flow.source, arrival.flow.destination);
    let sequence = u32::from_be_bytes(bytes(frame, arrival.payload + 4)?);
    let mut tcp = Vec::with_capacity(ANSWER_TCP);
    tcp.extend(arrival.flow.destination_port.to_be_bytes());
    tcp.extend(arrival.flow.source_port.to_be_bytes());
    tcp.extend(cookie.to_be_bytes());
    tcp.extend(sequence.wrapping_add(1).to_be_bytes());
    tcp.extend([((ANSWER_TCP / 4) << 4) as u8, Tcp::SYN | Tcp::ACK]);
    tcp.extend(ANSWER_WINDOW.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 2, 4]);
    tcp.extend(segment.to_be_bytes());
    let sum = checksum::transport(server, client, TCP, &tcp);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut answer = frame.get(..IP_OFFSET)?.to_vec();
    match (server, client) {
        (IpAddr::V4(server), IpAddr::V4(client)) => {
            let mut header = vec![0x45, 0, 0, 20 + ANSWER_TCP as u8, 0, 0, 0x40, 0, ANSWER_TTL, TCP, 0, 0];
            header.extend(server.octets());
            header.extend(client.octets());
            let sum = checksum::full(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            answer.extend(header);
        }
        (IpAddr::V6(server), IpAddr::V6(client)) => {
            answer.extend([0x60, 0, 0, 0, 0, ANSWER_TCP as u8, TCP, ANSWER_TTL]);
            answer.extend(server.octets());
            answer.extend(client.octets());
        }
        _ => return None,
    }
    answer.extend(tcp);
    Some(answer)
}

/// The cookie and the largest segment of an answer, of a frame without tags.
#[must_use]
pub fn syn_cookie_of(frame: &[u8]) -> Option<(u32, u16)> {
    let arrival = Arrival::read(frame).ok()?;
    let is_answer = arrival.flow.protocol == TCP && arrival.flags == Tcp::SYN | Tcp::ACK;
    let cookie = u32::from_be_bytes(bytes(frame, arrival.payload + 4)?);
    is_answer.then_some((cookie, word(frame, arrival.payload + 22)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_bucket_has_the_tokens_of_a_second_and_is_filled_again() {
        let rate = Rate::per_second(10);
        let mut bucket = Bucket::default();
        let taken = |bucket: &mut Bucket, time| (0..100).filter(|_| bucket.take(rate, at(time))).count();
        assert_eq!(taken(&mut bucket, 5_000), 10, "all at once");
        assert_eq!(taken(&mut bucket, 5_099), 0);
        assert_eq!(taken(&mut bucket, 5_100), 1, "one is back");
        assert_eq!(taken(&mut bucket, 5_450), 3);
        assert_eq!(taken(&mut bucket, 60_000), 10, "never more than a second's");
        let mut one = Bucket::default();
        assert!(one.take(Rate::per_second(1), at(0)) && !one.take(Rate::per_second(1), at(999)));
        assert!(one.take(Rate::per_second(1), at(1_000)));
        assert_eq!(Rate::per_second(0), Rate::per_second(1));
        assert_eq!(Rate::per_second(MAX_RATE).interval, 10);
    }

    #[test]
    fn a_source_of_ipv6_is_a_network() {
        let source = |text: &str| source_of(text.parse().unwrap()).to_string();
        assert_eq!(source("192.0.2.7"), "192.0.2.7");
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
