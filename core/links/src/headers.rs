//! What headers take of a packet.

use std::net::IpAddr;

/// The bytes of a TCP header with its timestamps (RFC 9293 section 3.1, RFC 7323 section 3.2), which systems send by
/// default.
pub const TCP_HEADER_BYTES: u32 = 20 + 12;
/// The bytes of a UDP header (RFC 768).
pub const UDP_HEADER_BYTES: u32 = 8;

/// The bytes of an IP header without options (RFC 791 section 3.1) or extensions (RFC 8200 section 3).
#[must_use]
pub fn ip_header_bytes(address: IpAddr) -> u32 {
    if address.to_canonical().is_ipv4() { 20 } else { 40 }
}

/// The bytes that one TCP segment carries over a path with this MTU, from a source of this address.
#[must_use]
pub fn segment_bytes(mtu_bytes: u32, source: IpAddr) -> u32 {
    mtu_bytes.saturating_sub(ip_header_bytes(source) + TCP_HEADER_BYTES)
}
