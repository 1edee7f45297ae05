//! Addresses and ports of a packet are replaced, and each checksum over them is changed by as much.

use super::Endpoint;
use crate::{
    checksum::Change,
    parse::{ICMP, Ip, Quoted, TCP, UDP, word},
};

/// Which end of a packet is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

/// Replaces an end of a TCP, UDP or echo packet.
pub(super) fn packet(frame: &mut [u8], ip: &Ip, end: End, new: Endpoint) {
    let address = header(frame, ip.offset, end, new).0;
    transport(frame, ip.payload(), address, end, new);
}

/// Replaces the address of an ICMP error's own header. ICMP has no pseudo header.
pub(super) fn address(frame: &mut [u8], ip: &Ip, end: End, new: Endpoint) {
    header(frame, ip.offset, end, new);
}

/// Replaces an end of the packet inside an ICMP error, and changes the error's checksum (RFC 5508, section 4.2).
pub(super) fn quoted(frame: &mut [u8], icmp: usize, quoted: &Quoted, end: End, new: Endpoint) {
    let (address, header) = header(frame, quoted.ip.offset, end, new);
    let transport = transport(frame, quoted.payload, address, end, new);
    fix(frame, icmp + 2, header.and(transport), false);
}

/// The change of the address, and that of the whole header with its checksum.
fn header(frame: &mut [u8], ip: usize, end: End, new: Endpoint) -> (Change, Change) {
    let at = ip + if end == End::Source { 12 } else { 16 };
    let address = write(frame, at, &new.address.octets());
    (address, address.and(fix(frame, ip + 10, address, false)))
}

/// The change of the transport's header with its checksum. A quote may be cut before the checksum.
fn transport(frame: &mut [u8], at: usize, address: Change, end: End, new: Endpoint) -> Change {
    let port_at = match (new.protocol, end) {
        (ICMP, _) => at + 4,
        (_, End::Source) => at,
        (_, End::Destination) => at + 2,
    };
    let port = write(frame, port_at, &new.port.to_be_bytes());
    match new.protocol {
        ICMP => port.and(fix(frame, at + 2, port, false)),
        TCP => port.and(fix(frame, at + 16, port.and(address), false)),
        UDP => port.and(fix(frame, at + 6, port.and(address), true)),
        _ => port,
    }
}

fn write(frame: &mut [u8], at: usize, new: &[u8]) -> Change {
    match frame.get_mut(at..at + new.len()) {
        Some(bytes) => {
            let change = Change::new().bytes(bytes, new);
            bytes.copy_from_slice(new);
            change
        }
        None => Change::new(),
    }
}

/// Changes a checksum. Returns the change of its field.
fn fix(frame: &mut [u8], at: usize, change: Change, is_udp: bool) -> Change {
    let Some(old) = word(frame, at) else { return Change::new() };
    let new = if is_udp { change.apply_udp(old) } else { change.apply(old) };
    write(frame, at, &new.to_be_bytes())
}
