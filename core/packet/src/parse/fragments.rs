//! The packets that fragments belong to: only the first fragment has ports, and the others follow it.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use super::{Packet, TCP};

/// The most fragmented packets at a time.
pub const MAX_FRAGMENTED: usize = 16_384;
/// How long after its first fragment the others of a packet may come.
pub const FRAGMENT_LIFETIME: Duration = Duration::from_secs(5);
/// Bytes of a header of TCP without options.
const TCP_HEADER_BYTES: u32 = 20;

/// Source, destination, identification and protocol of a fragmented packet.
type Key = (IpAddr, IpAddr, u32, u8);

/// What became of first fragments. Time is that since any fixed moment.
#[derive(Debug, Clone)]
pub struct Fragments<T> {
    known: HashMap<Key, (T, Duration)>,
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        Self { known: HashMap::new() }
    }
}

impl<T: Copy> Fragments<T> {
    /// Keeps what became of a first fragment. Other packets change nothing. The oldest makes room.
    pub fn remember(&mut self, packet: &Packet, value: T, now: Duration) {
        let Some((key, 0)) = place(packet) else { return };
        if self.known.len() >= MAX_FRAGMENTED && !self.known.contains_key(&key) {
            let oldest = self.known.iter().min_by_key(|(_, (_, expires))| *expires).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(key, (value, now + FRAGMENT_LIFETIME));
    }

    /// What became of the first fragment of a later one's packet. One that would replace the flags that were judged
    /// belongs to no packet (RFC 3128).
    #[must_use]
    pub fn recall(&self, packet: &Packet, now: Duration) -> Option<T> {
        let (key, offset) = place(packet).filter(|(_, offset)| *offset != 0)?;
        if key.3 == TCP && offset < TCP_HEADER_BYTES {
            return None;
        }
        self.known.get(&key).filter(|(_, expires)| *expires > now).map(|(value, _)| *value)
    }
}

/// The packet of a fragment, and the place of its payload.
fn place(packet: &Packet) -> Option<(Key, u32)> {
    let ip = packet.ip?;
    let fragment = ip.fragment?;
    Some(((ip.source, ip.destination, fragment.id, ip.protocol), fragment.offset))
}
