//! Reasons for which bytes are no packet.

/// The reason for which bytes cannot be read as a packet, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than an Ethernet header.
    #[error("the Ethernet header is cut short")]
    TruncatedEthernet,
    /// Fewer bytes than the announced VLAN tag.
    #[error("the VLAN tag is cut short")]
    TruncatedTag,
    /// A tag with the number 0 before or behind another tag, or of 802.1ad.
    #[error("a tag with the number 0 hides the packet")]
    ZeroTag,
    /// Fewer bytes than an IPv4 header.
    #[error("the IPv4 header is cut short")]
    TruncatedIpv4,
    /// The version field disagrees with the type of the frame.
    #[error("the version of the IP header is not that of the frame")]
    WrongVersion,
    /// The IPv4 header claims fewer than 20 bytes.
    #[error("the IPv4 header says that it has fewer than 20 bytes")]
    ShortIpv4Header,
    /// The total length is less than the header.
    #[error("the IPv4 total length is less than the header")]
    ShortIpv4Length,
    /// The total length is more than the frame has.
    #[error("the IPv4 total length is more than the frame has")]
    LongIpv4Length,
    /// The checksum of the IPv4 header is wrong (RFC 1812, section 5.2.2).
    #[error("the checksum of the IPv4 header is wrong")]
    WrongIpv4Checksum,
    /// Fewer bytes than an IPv6 header.
    #[error("the IPv6 header is cut short")]
    TruncatedIpv6,
    /// The payload length is more than the frame has.
    #[error("the IPv6 payload length is more than the frame has")]
    LongIpv6Length,
    /// An extension header is cut short.
    #[error("an IPv6 extension header is cut short")]
    TruncatedExtension,
    /// More extension headers than [`MAX_EXTENSION_HEADERS`](super::MAX_EXTENSION_HEADERS).
    #[error("the IPv6 packet has too many extension headers")]
    TooManyExtensions,
    /// Hop-by-hop options behind another extension header (RFC 8200, section 4.1).
    #[error("the hop-by-hop options are not the first extension header")]
    MisplacedHopByHop,
    /// Fewer bytes than a TCP header.
    #[error("the TCP header is cut short")]
    TruncatedTcp,
    /// The TCP data offset is less than 20 bytes.
    #[error("the TCP header says that it has fewer than 20 bytes")]
    ShortTcpHeader,
    /// Fewer bytes than a UDP header.
    #[error("the UDP header is cut short")]
    TruncatedUdp,
    /// The UDP length is less than its header or more than the packet has.
    #[error("the UDP length does not agree with the packet")]
    WrongUdpLength,
    /// Fewer bytes than an ICMP header.
    #[error("the ICMP header is cut short")]
    TruncatedIcmp,
    /// The packet inside an ICMP error is cut before its ports, or is no packet.
    #[error("the packet inside the ICMP error cannot be read")]
    BadQuote,
}
