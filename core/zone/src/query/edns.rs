//! EDNS (RFC 6891) and its options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest cookie, in bytes: 8 of the client, and at most 32 of the server (RFC 7873 section 4).
pub const MAX_COOKIE_BYTES: usize = 40;

const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;
const COOKIE: u16 = 10;

/// What a query says by EDNS.
#[derive(Debug, Clone, Copy)]
pub struct Edns<'a> {
    /// The longest UDP message that the client takes, in bytes.
    pub udp_bytes: u16,
    /// The version. Only 0 is implemented.
    pub version: u8,
    /// The client takes signatures (DO).
    pub is_dnssec_ok: bool,
    /// The client takes the code NXDOMAIN with a compact answer (CO, RFC 9824 section 5.1).
    pub is_compact_ok: bool,
    /// The client asks for the name of the server (RFC 5001).
    pub is_nsid_wanted: bool,
    /// The cookies, if the option is well formed.
    pub cookie: Option<ReceivedCookie<'a>>,
    /// Where the client is (RFC 7871).
    pub subnet: Option<ClientSubnet>,
}

/// The cookies of a query (RFC 7873 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedCookie<'a> {
    /// The client's.
    pub client: &'a [u8; 8],
    /// The server's, which the client got before. Empty: the client has none.
    pub server: &'a [u8],
}

/// The network of the client on whose behalf a resolver asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSubnet {
    /// The family: 1 is IPv4, 2 IPv6, and 0 that of a client that wants to stay unknown.
    pub family: u8,
    /// The address of the network.
    pub address: IpAddr,
    /// Number of significant bits.
    pub prefix: u8,
}

impl<'a> Edns<'a> {
    /// Reads the fields of an OPT record; `None` if an option is malformed.
    pub(super) fn read(class: u16, ttl: u32, options: &'a [u8]) -> Option<Self> {
        let mut edns = Self {
            udp_bytes: class,
            version: (ttl >> 16) as u8,
            is_dnssec_ok: ttl & 0x8000 != 0,
            is_compact_ok: ttl & 0x4000 != 0,
            is_nsid_wanted: false,
            cookie: None,
            subnet: None,
        };
        let mut rest = options;
        while !rest.is_empty() {
            let fixed = rest.first_chunk::<4>()?;
            let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            let value = rest.get(4..4 + len)?;
            rest = &rest[4 + len..];
            // What an unknown version means by its options is unknown.
            if edns.version != 0 {
                continue;
            }
            match u16::from_be_bytes([fixed[0], fixed[1]]) {
                NSID => edns.is_nsid_wanted = true,
                CLIENT_SUBNET => edns.subnet = Some(ClientSubnet::read(value)?),
                //= RFC 7873 section 5.2
                //# If multiple COOKIE options are present, all but the first are ignored.
                COOKIE if edns.cookie.is_none() => edns.cookie = Some(ReceivedCookie::read(value)?),
                _ => {}
            }
        }
        Some(edns)
    }
}

impl<'a> ReceivedCookie<'a> {
    //= RFC 7873 section 5.2.2
    //# If the COOKIE option is too short to contain a Client Cookie, then FORMERR is generated.
    fn read(value: &'a [u8]) -> Option<Self> {
        let (client, server) = value.split_first_chunk::<8>()?;
        let is_valid = value.len() <= MAX_COOKIE_BYTES && (server.is_empty() || server.len() >= 8);
        is_valid.then_some(Self { client, server })
    }
}

impl ClientSubnet {
    fn read(value: &[u8]) -> Option<Self> {
        let (fixed, address) = value.split_first_chunk::<4>()?;
        let family = u16::from_be_bytes([fixed[0], fixed[1]]);
        let (prefix, scope) = (fixed[2], fixed[3]);
        //= RFC 7871 section 6
        //# In queries, it MUST be set to 0.
        if scope != 0 || address.len() != usize::from(prefix).div_ceil(8) {
            return None;
        }
        // Bits beyond the prefix are zero.
        if prefix % 8 != 0 && address.last().is_some_and(|last| last << (prefix % 8) != 0) {
            return None;
        }
        let mut bytes = [0; 16];
        let address = match (family, prefix) {
            (1, ..=32) => {
                bytes[..address.len()].copy_from_slice(address);
                IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
            }
            (2, ..=128) => {
                bytes[..address.len()].copy_from_slice(address);
                IpAddr::V6(Ipv6Addr::from(bytes))
            }
            // A client that wants to stay unknown names no family.
            (0, 0) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            _ => return None,
        };
        Some(Self { family: family as u8, address, prefix })
    }
}
