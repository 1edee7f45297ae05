//! ICMP and ICMPv6 messages, with the packet inside an error.

use super::{ICMP, ICMPV6, Icmp, IcmpMessage, Ip, Malformed, Quoted, TCP, UDP, bytes, ip, word};

pub(super) fn message(frame: &[u8], ip: &Ip) -> Result<Icmp, Malformed> {
    let offset = ip.payload();
    let header: [u8; 8] = bytes(frame, offset).ok_or(Malformed::TruncatedIcmp)?;
    let identifier = u16::from_be_bytes([header[4], header[5]]);
    let [kind, code, ..] = header;
    let message = match (ip.protocol, kind) {
        (ICMP, 8) | (ICMPV6, 128) => IcmpMessage::EchoRequest(identifier),
        (ICMP, 0) | (ICMPV6, 129) => IcmpMessage::EchoReply(identifier),
        // Destination unreachable, source quench, time exceeded, parameter problem.
        (ICMP, 3 | 4 | 11 | 12) | (ICMPV6, 1..=4) => match ip.fragment {
            None => IcmpMessage::Error(quoted(frame, offset + 8, ip.protocol == ICMP)?),
            Some(_) => return Err(Malformed::BadQuote),
        },
        _ => IcmpMessage::Other,
    };
    Ok(Icmp { offset, kind, code, message })
}

fn quoted(frame: &[u8], offset: usize, is_ipv4: bool) -> Result<Quoted, Malformed> {
    let read = if is_ipv4 { ip::ipv4 } else { ip::ipv6 };
    let inner = read(frame, offset, ip::Place::Quote).map_err(|_| Malformed::BadQuote)?;
    if inner.trouble.is_some() {
        return Err(Malformed::BadQuote);
    }
    let ip = inner.header;
    let payload = ip.payload();
    let field = |at: usize| word(frame, payload + at).ok_or(Malformed::BadQuote);
    let is_later = ip.fragment.is_some_and(|fragment| fragment.offset != 0);
    let (source, destination) = match ip.protocol {
        _ if is_later => (0, 0),
        TCP | UDP => (field(0)?, field(2)?),
        ICMP | ICMPV6 => match (ip.protocol, field(0)? >> 8) {
            (ICMP, 8) | (ICMPV6, 128) => (field(4)?, 0),
            (ICMP, 0) | (ICMPV6, 129) => (0, field(4)?),
            _ => (0, 0),
        },
        _ => (0, 0),
    };
    Ok(Quoted { ip, source, destination, payload })
}
