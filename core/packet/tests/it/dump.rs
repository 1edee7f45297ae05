//! Filters and lines of `packet dump`.

use sallyport_packet_model::dump::{Filter, MAX_FILTER_BYTES, is_rewritten, line, link};

use sallyport_packet_model::testing::Frame;

fn udp4() -> Vec<u8> {
    Frame::udp(("192.0.2.1", 1234), ("198.51.100.2", 53), b"question").bytes()
}

fn tcp6() -> Vec<u8> {
    Frame::tcp(("2001:db8::1", 1234), ("2001:db8:1::2", 443), 0x12, b"data").bytes()
}

fn is_match(filter: &str, frame: &[u8]) -> bool {
    Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}")).is_match(frame, frame.len() as u32)
}

#[test]
fn filters_take_what_tcpdump_takes() {
    let tagged = Frame { tags: vec![100], ..Frame::echo("192.0.2.1", "198.51.100.2", false, 7) }.bytes();
    let arp = [[0xff; 6].as_slice(), &[2, 0, 0, 0, 0, 9, 8, 6], &[0; 28]].concat();
    let frames = [("u", udp4()), ("t", tcp6()), ("v", tagged), ("a", arp)];
    let cases = [
        ("", "utva"),
        ("ip", "uv"),
        ("ip6", "t"),
        ("arp", "a"),
        ("tcp", "t"),
        ("udp", "u"),
        ("icmp", "v"),
        ("icmp6", ""),
        ("host 192.0.2.1", "uv"),
        ("192.0.2.1", "uv"),
        ("src 192.0.2.1", "uv"),
        ("dst host 192.0.2.1", ""),
        ("src or dst host 198.51.100.2", "uv"),
        ("src and dst net 2001:db8::/32", "t"),
        ("net 198.51.100.0/24", "uv"),
        ("net 198.51", "uv"),
        ("dst net 2001:db8:1::/48", "t"),
        ("port 53", "u"),
        ("src port 53", ""),
        ("tcp port 53", ""),
        ("udp dst port 53", "u"),
        ("ip6 port 443", "t"),
        ("ip port 443", ""),
        ("port 53 or 443", "ut"),
        ("portrange 400-500", "t"),
        ("vlan", "v"),
        ("vlan 100", "v"),
        ("vlan 101", ""),
        ("vlan and icmp", "v"),
        ("not vlan and ip", "u"),
        ("!(udp||tcp)", "va"),
        ("udp or tcp and ip6", "t"),
        ("udp or (tcp and ip6)", "ut"),
        ("host 192.0.2.9 or 2001:db8::1", "t"),
        ("ip proto 17", "u"),
        ("proto tcp", "t"),
        ("ether proto 0x806", "a"),
        ("ether src 02:00:00:00:00:09", "utva"),
        ("ether dst ff:ff:ff:ff:ff:ff", "a"),
        ("udp host 192.0.2.1", "u"),
        ("less 45 and greater 42", "a"),
        ("not not udp", "u"),
    ];
    for (filter, wanted) in cases {
        let taken: String = frames.iter().filter(|(_, frame)| is_match(filter, frame)).map(|(name, _)| *name).collect();
        assert_eq!(taken, wanted, "{filter}");
    }
}

#[test]
fn a_filter_sees_what_is_there_of_bad_and_cut_frames() {
    let frame = udp4();
    for length in 0..frame.len() {
        for filter in ["host 192.0.2.1", "port 53", "vlan", "not ip"] {
            is_match(filter, &frame[..length]);
        }
    }
    assert!(is_match("host 192.0.2.1", &frame[..34]) && !is_match("port 53", &frame[..34]));
    let mut wrong = frame.clone();
    wrong[25] ^= 1;
    assert!(is_match("port 53", &wrong), "a wrong checksum hides nothing");
    let later = Frame { fragment: 0x00b9, ..Frame::udp(("192.0.2.1", 53), ("198.51.100.2", 53), b"x") }.bytes();
    assert!(!is_match("port 53", &later), "a later fragment has no ports");
}

#[test]
fn a_bad_filter_is_refused_by_one_sentence() {
    let said = |filter: &str| Filter::parse(filter).unwrap_err().to_string();
    assert_eq!(said("host"), "the filter ends where an address (names are not looked up) is expected");
    let named = "the filter has \"example.com\" at character 6, where an address (names are not looked up) is expected";
    assert_eq!(said("host example.com"), named);
    assert_eq!(said("port http"), "the filter has \"http\" at character 6, where the number of a port is expected");
    assert_eq!(said("port 70000"), "the filter has \"70000\" at character 6, where the number of a port is expected");
    assert!(said("portrange 9-1").contains("where a range of ports such as 1000-2000 is expected"));
    assert_eq!(said("tcp and"), format!("the filter ends where {} is expected", primitive()));
    assert!(said("tcp udp").starts_with("the filter has \"udp\" at character 5, where and, or, or the end"));
    assert!(said("(tcp").starts_with("the filter ends where and, or, or a parenthesis"));
    assert!(said("tcp)").starts_with("the filter has \")\" at character 4"));
    assert!(said("tcp[13] = 2").starts_with("the filter has \"tcp[13]\" at character 1, where host, net, port"));
    assert_eq!(said("net 192.0.2.1/24"), "the network 192.0.2.1/24 has bits behind its length: write 192.0.2.0/24");
    assert_eq!(said("ip6 host 192.0.2.1"), "the filter asks ip6 for an address of the other family, 192.0.2.1");
    assert_eq!(said("icmp port 5"), "the filter has \"icmp\" before \"port\", which does not go together");
    assert_eq!(said(&"(".repeat(100)), "the filter has more than 64 parentheses and negations within one another");
    assert_eq!(said(&" ".repeat(MAX_FILTER_BYTES + 1)), "the filter has more than 8192 bytes");
    // The longest filters are read and asked without a deep stack.
    let long = format!("port 1{}", " or 2".repeat(1_600));
    assert!(!is_match(&long, &udp4()));
}

fn primitive() -> &'static str {
    "host, net, port, portrange, proto, src, dst, ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, ether, vlan, less or greater"
}

#[test]
fn lines_read_as_those_of_tcpdump() {
    let shown = |frame: Vec<u8>| line(&frame, frame.len() as u32);
    assert_eq!(shown(udp4()), "IP 192.0.2.1.1234 > 198.51.100.2.53: UDP, length 8, ttl 64");
    let syn = "IP6 2001:db8::1.1234 > 2001:db8:1::2.443: \
               Flags [S.], seq 16909060:16909064, ack 0, win 8192, length 4, ttl 64";
    assert_eq!(shown(tcp6()), syn);
    let echo = Frame { tags: vec![100], ..Frame::echo("192.0.2.1", "198.51.100.2", false, 7) };
    let line_of_echo = "vlan 100, IP 192.0.2.1 > 198.51.100.2: ICMP echo request, id 7, seq 1, length 12, ttl 64";
    assert_eq!(shown(echo.bytes()), line_of_echo);
    let fragment = Frame { fragment: 0x20b9, ..Frame::udp(("192.0.2.1", 1), ("198.51.100.2", 2), b"x") };
    let later = "IP 192.0.2.1 > 198.51.100.2: fragment at 1480 (more follow), UDP, length 9, ttl 64";
    assert_eq!(shown(fragment.bytes()), later);
    assert_eq!(line(&udp4()[..40], 50), "IP 192.0.2.1.1234 > 198.51.100.2.53: UDP, length 8, ttl 64");
    assert_eq!(line(&udp4()[..36], 50), "IP 192.0.2.1 > 198.51.100.2: [|udp], length 16, ttl 64");
    assert_eq!(line(&udp4()[..20], 50), "IP [|ip], length 50");
    assert_eq!(line(&udp4()[..9], 9), "[|ether], length 9");
    assert_eq!(link(&udp4(), 50), "02:00:00:00:00:09 > 02:00:00:00:00:01, length 50: ");
}

#[test]
fn rewritten_means_tags_addresses_ports_and_identifiers() {
    let frame = udp4();
    let mut aged = frame.clone();
    (aged[0], aged[22]) = (4, 63);
    assert!(!is_rewritten(&frame, &aged), "every router does that");
    let nat = Frame::udp(("203.0.113.1", 4000), ("198.51.100.2", 53), b"question").bytes();
    assert!(is_rewritten(&frame, &nat));
    let echo = |id| Frame::echo("192.0.2.1", "198.51.100.2", false, id).bytes();
    assert!(is_rewritten(&echo(1), &echo(2)) && !is_rewritten(&echo(1), &echo(1)));
    let tagged = Frame { tags: vec![5], ..Frame::echo("192.0.2.1", "198.51.100.2", false, 1) }.bytes();
    assert!(is_rewritten(&echo(1), &tagged));
}
