//! IPv4 and IPv6 headers, in frames and in the quotes of ICMP errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Fragment, Ip, Malformed, bytes, word};
use crate::checksum;

/// The most extension headers that are read before the payload.
pub const MAX_EXTENSION_HEADERS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;

/// Where a header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a frame: the packet must be whole, and an IPv4 header has the right checksum.
    Frame,
    /// In an ICMP error, which has only the start of the packet.
    Quote,
}

/// A header, and what is wrong behind it.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) header: Ip,
    pub(super) trouble: Option<Malformed>,
}

pub(super) fn ipv4(frame: &[u8], offset: usize, place: Place) -> Result<Header, Malformed> {
    let header: [u8; 20] = bytes(frame, offset).ok_or(Malformed::TruncatedIpv4)?;
    if header[0] >> 4 != 4 {
        return Err(Malformed::WrongVersion);
    }
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    if header_bytes < 20 {
        return Err(Malformed::ShortIpv4Header);
    }
    let whole = frame.get(offset..offset + header_bytes).ok_or(Malformed::TruncatedIpv4)?;
    let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total_bytes < header_bytes {
        return Err(Malformed::ShortIpv4Length);
    }
    if place == Place::Frame {
        if offset + total_bytes > frame.len() {
            return Err(Malformed::LongIpv4Length);
        }
        if checksum::full(whole) != 0 {
            return Err(Malformed::WrongIpv4Checksum);
        }
    }
    let fields = u16::from_be_bytes([header[6], header[7]]);
    let id = u32::from(u16::from_be_bytes([header[4], header[5]]));
    let fragment = Fragment { offset: u32::from(fields & 0x1fff) * 8, has_more: fields & 0x2000 != 0, id };
    let header = Ip {
        offset,
        header_bytes,
        total_bytes,
        source: IpAddr::V4(Ipv4Addr::new(header[12], header[13], header[14], header[15])),
        destination: IpAddr::V4(Ipv4Addr::new(header[16], header[17], header[18], header[19])),
        protocol: header[9],
        hop_limit: header[8],
        fragment: Some(fragment).filter(|fragment| fragment.has_more || fragment.offset != 0),
        has_router_options: header_bytes > 20,
    };
    Ok(Header { header, trouble: None })
}

pub(super) fn ipv6(frame: &[u8], offset: usize, place: Place) -> Result<Header, Malformed> {
    let fixed: [u8; 40] = bytes(frame, offset).ok_or(Malformed::TruncatedIpv6)?;
    if fixed[0] >> 4 != 6 {
        return Err(Malformed::WrongVersion);
    }
    let total_bytes = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    if place == Place::Frame && offset + total_bytes > frame.len() {
        return Err(Malformed::LongIpv6Length);
    }
    let address = |at| bytes::<16>(&fixed, at).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    let (Some(source), Some(destination)) = (address(8), address(24)) else { return Err(Malformed::TruncatedIpv6) };
    let mut header = Ip {
        offset,
        header_bytes: 40,
        total_bytes,
        source,
        destination,
        protocol: fixed[6],
        hop_limit: fixed[7],
        fragment: None,
        has_router_options: fixed[6] == HOP_BY_HOP,
    };
    let frame = frame.get(..header.end()).unwrap_or(frame);
    let trouble = extensions(frame, &mut header).err();
    Ok(Header { header, trouble })
}

/// Reads extension headers up to the payload, or to the fragment header of a later fragment (RFC 8200, section 4).
fn extensions(frame: &[u8], ip: &mut Ip) -> Result<(), Malformed> {
    for index in 0..=MAX_EXTENSION_HEADERS {
        let kind = ip.protocol;
        if !matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY) {
            return Ok(());
        }
        if index == MAX_EXTENSION_HEADERS {
            break;
        }
        if kind == HOP_BY_HOP && index != 0 {
            return Err(Malformed::MisplacedHopByHop);
        }
        let start = ip.payload();
        let [next, length] = bytes(frame, start).ok_or(Malformed::TruncatedExtension)?;
        let size = match kind {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        if frame.len() < start + size {
            return Err(Malformed::TruncatedExtension);
        }
        if kind == FRAGMENT {
            let fields = word(frame, start + 2).ok_or(Malformed::TruncatedExtension)?;
            let id = bytes(frame, start + 4).map(u32::from_be_bytes).ok_or(Malformed::TruncatedExtension)?;
            let fragment = Fragment { offset: u32::from(fields & 0xfff8), has_more: fields & 1 != 0, id };
            // An atomic fragment is a whole packet (RFC 6946).
            if fragment.has_more || fragment.offset != 0 {
                ip.fragment = Some(fragment);
            }
        }
        ip.header_bytes += size;
        ip.protocol = next;
        if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return Ok(());
        }
    }
    Err(Malformed::TooManyExtensions)
}
