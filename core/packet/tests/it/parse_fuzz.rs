//! What the fuzzer does with a frame: whatever it is, it is read within its bytes, and never differently, and shown.

use sallyport_packet_model::{
    dump::{Filter, line},
    parse::{IcmpMessage, Transport, parse},
};

/// Filters that ask for all that a frame has.
const FILTERS: [&str; 4] = ["host 192.0.2.1", "tcp port 53", "vlan 100 and icmp6", "not net fd00::/8"];

/// Reads the frame, and checks what was read.
pub(crate) fn packet_frame(frame: &[u8]) {
    // Whatever the frame is, it has a line, and a filter takes it or leaves it.
    let shown = line(frame, frame.len() as u32);
    assert!(!shown.is_empty() && !shown.contains(char::is_control), "{shown}");
    for filter in FILTERS.map(|filter| Filter::parse(filter).unwrap_or_default()) {
        assert_eq!(filter.is_match(frame, 9), filter.is_match(frame, 9));
    }
    let Ok(packet) = parse(frame) else { return };
    assert!(packet.ethernet.bytes <= frame.len());
    assert_eq!(packet.ethernet.bytes, 14 + 4 * packet.ethernet.tags.count());
    let Some(ip) = packet.ip else {
        assert_eq!(packet.transport, Transport::Other);
        return;
    };
    assert_eq!(ip.source.is_ipv4(), ip.destination.is_ipv4());
    assert_eq!(ip.offset, packet.ethernet.bytes);
    assert!(ip.payload() <= ip.end() && ip.end() <= frame.len(), "{ip:?}");
    match packet.transport {
        Transport::Tcp(tcp) => assert!(tcp.offset == ip.payload() && tcp.offset + 20 <= ip.end()),
        Transport::Udp(udp) => assert!(udp.offset == ip.payload() && udp.offset + 8 <= ip.end()),
        Transport::Icmp(icmp) => {
            assert!(icmp.offset == ip.payload() && icmp.offset + 8 <= ip.end());
            if let IcmpMessage::Error(quoted) = icmp.message {
                assert_eq!(quoted.ip.source.is_ipv4(), ip.source.is_ipv4());
                assert!(quoted.ip.offset == icmp.offset + 8 && quoted.payload <= ip.end());
            }
        }
        Transport::LaterFragment => assert!(ip.fragment.is_some_and(|fragment| fragment.offset != 0)),
        Transport::Other | Transport::Malformed(_) => {}
    }
    // Padding of the frame changes nothing.
    assert_eq!(parse(&[frame, &[0; 7]].concat()), Ok(packet));
    assert_eq!(parse(&frame[..ip.end()]), Ok(packet));
}
