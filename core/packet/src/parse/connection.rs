//! What is known of a connection of TCP: whose end counts.

use super::Tcp;

/// How far an acknowledgement may be ahead of what was seen: packets that went another way.
const MAX_AHEAD: u32 = 1 << 20;

/// The numbers of a connection, so that a stranger who guesses its ends can end nothing.
///
/// A reset counts if its number is among those that the other side may wait for: from the last that was acknowledged to
/// the last that was sent. Of an idle connection that is one number (RFC 5961, section 3.2). An end counts if both sides
/// have ended. The side 0 is the one that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connection {
    /// The end of what each side has sent without a gap.
    ends: [Option<u32>; 2],
    /// What each side has acknowledged of the other one.
    acks: [Option<u32>; 2],
    has_ended: [bool; 2],
}

fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

impl Connection {
    /// Counts a segment in. Says whether it ends the connection: a reset that counts, or the second end.
    pub fn count_in(&mut self, tcp: &Tcp, is_of_beginner: bool) -> bool {
        let (own, other) = if is_of_beginner { (0, 1) } else { (1, 0) };
        let is_awaited = self.is_awaited(tcp, own, other);
        if tcp.flags & Tcp::RST != 0 {
            return is_awaited;
        }
        if is_awaited && self.ends[own].is_none_or(|end| is_before(end, tcp.end())) {
            self.ends[own] = Some(tcp.end());
        }
        self.has_ended[own] |= is_awaited && tcp.flags & Tcp::FIN != 0;
        let ack = tcp.acknowledgement;
        let is_new = self.acks[own].is_none_or(|last| is_before(last, ack));
        let is_near = self.ends[other].is_none_or(|end| is_before(ack, end.wrapping_add(MAX_AHEAD)));
        if tcp.flags & Tcp::ACK != 0 && is_new && is_near {
            // What a side has received, the other one has sent.
            if self.ends[other].is_none_or(|end| is_before(end, ack)) {
                self.ends[other] = Some(ack);
            }
            self.acks[own] = Some(ack);
        }
        self.has_ended == [true; 2]
    }

    /// Whether a segment is one that the other side may wait for. Of a connection that nobody knows, each is.
    fn is_awaited(&self, tcp: &Tcp, own: usize, other: usize) -> bool {
        match self.ends[own] {
            None => self.ends[other].is_none_or(|end| tcp.flags & Tcp::ACK != 0 && tcp.acknowledgement == end),
            Some(end) => {
                let low = self.acks[other].unwrap_or(end);
                !is_before(tcp.sequence, low) && !is_before(end, tcp.sequence)
            }
        }
    }
}

impl Tcp {
    /// The number after the last byte. SYN and FIN count as one byte each.
    fn end(&self) -> u32 {
        let marks = u32::from(self.flags & Self::SYN != 0) + u32::from(self.flags & Self::FIN != 0);
        self.sequence.wrapping_add(self.length).wrapping_add(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u8, sequence: u32, acknowledgement: u32, length: u32) -> Tcp {
        Tcp { offset: 34, source: 1, destination: 2, flags, sequence, acknowledgement, length }
    }

    /// An established connection whose numbers go over the end of 32 bits.
    fn established() -> Connection {
        let mut connection = Connection::default();
        assert!(!connection.count_in(&segment(Tcp::SYN, u32::MAX - 4, 0, 0), true));
        assert!(!connection.count_in(&segment(Tcp::SYN | Tcp::ACK, 900, u32::MAX - 3, 0), false));
        assert!(!connection.count_in(&segment(Tcp::ACK, u32::MAX - 3, 901, 10), true));
        assert!(!connection.count_in(&segment(Tcp::ACK, 901, 6, 0), false));
        connection
    }

    #[test]
    fn only_the_awaited_reset_counts() {
        for guessed in [0, 899, 900, 902, 1_000, 70_000, 1 << 31] {
            assert!(!established().count_in(&segment(Tcp::RST, guessed, 0, 0), false), "{guessed}");
        }
        assert!(established().count_in(&segment(Tcp::RST, 901, 0, 0), false));
        assert!(established().count_in(&segment(Tcp::RST, 6, 0, 0), true));
        // With data on its way, each number of it counts.
        let mut connection = established();
        connection.count_in(&segment(Tcp::ACK, 901, 6, 100), false);
        assert!(connection.count_in(&segment(Tcp::RST, 1_001, 0, 0), false));
        assert!(connection.count_in(&segment(Tcp::RST, 901, 0, 0), false));
        assert!(!connection.count_in(&segment(Tcp::RST, 1_002, 0, 0), false));
    }

    #[test]
    fn data_of_a_stranger_moves_no_number() {
        let mut connection = established();
        for guessed in (0..=u32::MAX - 1_000_000).step_by(999_983) {
            if guessed != 901 {
                connection.count_in(&segment(Tcp::ACK | Tcp::FIN, guessed, guessed, 1_400), false);
            }
        }
        assert!(connection.count_in(&segment(Tcp::RST, 901, 0, 0), false), "{connection:?}");
    }

    #[test]
    fn a_refused_connection_and_both_ends_count() {
        let mut connection = Connection::default();
        connection.count_in(&segment(Tcp::SYN, 7, 0, 0), true);
        assert!(!connection.count_in(&segment(Tcp::RST | Tcp::ACK, 0, 9, 0), false));
        assert!(connection.count_in(&segment(Tcp::RST | Tcp::ACK, 0, 8, 0), false));
        let mut connection = established();
        assert!(!connection.count_in(&segment(Tcp::FIN | Tcp::ACK, 901, 6, 5), false));
        assert!(!connection.count_in(&segment(Tcp::FIN | Tcp::ACK, 901, 6, 5), false), "sent again");
        assert!(!connection.count_in(&segment(Tcp::ACK, 6, 907, 0), true));
        assert!(connection.count_in(&segment(Tcp::FIN | Tcp::ACK, 6, 907, 0), true));
    }
}
