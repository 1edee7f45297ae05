//! Frames that are read, and the reason for each that is not.

use sallyport_packet_model::parse::{Flow, Fragment, IcmpMessage, Malformed, Tags, Transport, parse};

use sallyport_packet_model::testing::Frame;

const V4: (&str, u16) = ("192.0.2.1", 1234);
const V6: (&str, u16) = ("2001:db8::1", 1234);

fn udp4() -> Frame {
    Frame::udp(V4, ("198.51.100.2", 53), b"question")
}

fn udp6() -> Frame {
    Frame::udp(V6, ("2001:db8:1::2", 53), b"question")
}

/// The frame with one byte changed.
fn with(frame: &Frame, at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = frame.bytes();
    bytes[at] = byte;
    bytes
}

#[test]
fn tags_are_read_up_to_two() {
    let tagged = |tags: &[u16]| parse(&Frame { tags: tags.to_vec(), ..udp4() }.bytes()).unwrap();
    assert_eq!(tagged(&[]).ethernet.tags, Tags::default());
    assert_eq!(tagged(&[0xe064]).ethernet.tags, Tags::one(100), "without the priority");
    assert_eq!(tagged(&[100, 200]).ethernet.tags, Tags { outer: Some(100), inner: Some(200) });
    assert_eq!(tagged(&[100, 200]).ip.unwrap().offset, 22);
    assert_eq!(tagged(&[1, 2, 3]).ip, None, "a third tag is another protocol");
}

#[test]
fn ports_are_read_behind_options_and_extension_headers() {
    let options = parse(&Frame { extra: vec![0x94, 4, 0, 0], ..udp4() }.bytes()).unwrap();
    let ip = options.ip.unwrap();
    assert!(ip.has_router_options && ip.header_bytes == 24);
    let Transport::Udp(udp) = options.transport else { panic!("{options:?}") };
    assert_eq!((udp.source, udp.destination), (1234, 53));
    // Hop-by-hop options, a routing header, an atomic fragment.
    let extra = vec![43, 0, 5, 2, 0, 0, 1, 0, 44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 1];
    let long = parse(&Frame { extra, next_header: Some(0), ..udp6() }.bytes()).unwrap();
    let ip = long.ip.unwrap();
    assert!(ip.has_router_options && ip.header_bytes == 64 && ip.protocol == 17 && ip.fragment.is_none());
    assert!(matches!(long.transport, Transport::Udp(udp) if udp.destination == 53));
}

#[test]
fn fragments_have_one_flow_without_ports() {
    let first = parse(&Frame { fragment: 0x2000, ..udp4() }.bytes()).unwrap();
    let later = parse(&Frame { fragment: 0x0005, ..udp4() }.bytes()).unwrap();
    assert_eq!(first.ip.unwrap().fragment, Some(Fragment { offset: 0, has_more: true, id: 0x1234 }));
    assert_eq!(later.ip.unwrap().fragment, Some(Fragment { offset: 40, has_more: false, id: 0x1234 }));
    assert_eq!(later.transport, Transport::LaterFragment);
    assert_eq!(Flow::of(&first), Flow::of(&later));
    let extra = vec![17, 0, 0, 9, 1, 2, 3, 4];
    let later = parse(&Frame { extra, next_header: Some(44), ..udp6() }.bytes()).unwrap();
    assert_eq!(later.ip.unwrap().fragment, Some(Fragment { offset: 8, has_more: true, id: 0x0102_0304 }));
    assert_eq!(later.transport, Transport::LaterFragment);
}

#[test]
fn an_error_takes_the_way_of_answers() {
    let error = parse(&Frame::error("203.0.113.1", V4.0, 3, &udp4().packet()[..28]).bytes()).unwrap();
    let Transport::Icmp(icmp) = error.transport else { panic!("{error:?}") };
    let IcmpMessage::Error(quoted) = icmp.message else { panic!("{icmp:?}") };
    assert_eq!((quoted.source, quoted.destination), (1234, 53));
    let answers = Flow::of(&parse(&udp4().bytes()).unwrap()).unwrap().reversed();
    assert_eq!(Flow::for_routing(&error), Some(answers));
    assert_eq!(Flow::of(&error).unwrap().source_port, 0);
    let echo = parse(&Frame::echo(V6.0, "2001:db8::2", false, 7).bytes()).unwrap();
    assert!(matches!(echo.transport, Transport::Icmp(icmp) if icmp.message == IcmpMessage::EchoRequest(7)));
}

#[test]
fn frames_that_are_no_packets_have_a_reason() {
    let cut = |frame: &Frame, bytes: usize| frame.bytes()[..bytes].to_vec();
    let (v4, v6) = (udp4(), udp6());
    let tagged = Frame { tags: vec![5], ..udp4() };
    let wrong_length = |high: u8, low: u8| {
        let mut bytes = v4.bytes();
        (bytes[16], bytes[17]) = (high, low);
        bytes
    };
    for (name, frame, reason) in [
        ("empty", vec![], Malformed::TruncatedEthernet),
        ("13 bytes", cut(&v4, 13), Malformed::TruncatedEthernet),
        ("tag", cut(&tagged, 17), Malformed::TruncatedTag),
        ("33 bytes", cut(&v4, 33), Malformed::TruncatedIpv4),
        ("options", with(&v4, 14, 0x4f)[..50].to_vec(), Malformed::TruncatedIpv4),
        ("version 6", with(&v4, 14, 0x65), Malformed::WrongVersion),
        ("header of 16", with(&v4, 14, 0x44), Malformed::ShortIpv4Header),
        ("length of 19", wrong_length(0, 19), Malformed::ShortIpv4Length),
        ("length of 65535", wrong_length(0xff, 0xff), Malformed::LongIpv4Length),
        ("checksum", with(&v4, 22, 63), Malformed::WrongIpv4Checksum),
        ("cut", cut(&v4, 40), Malformed::LongIpv4Length),
        ("53 bytes", cut(&v6, 53), Malformed::TruncatedIpv6),
        ("version 4", with(&v6, 14, 0x45), Malformed::WrongVersion),
        ("cut 6", cut(&v6, 60), Malformed::LongIpv6Length),
    ] {
        assert_eq!(parse(&frame), Err(reason), "{name}");
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn payloads_that_cannot_be_read_have_a_reason_too() {
    let segment4 = |protocol, segment: &[u8]| Frame::new(V4.0, "198.51.100.2", protocol, segment.to_vec());
    let segment6 = |next_header, bytes: &[u8]| Frame {
        next_header: Some(next_header),
        ..Frame::new(V6.0, "2001:db8::2", 200, bytes.to_vec())
    };
    let mut short_header = Frame::tcp(V4, ("198.51.100.2", 80), 2, b"");
    short_header.segment[12] = 0x40;
    let mut long_header = short_header.clone();
    long_header.segment[12] = 0x60;
    let many = [60, 0, 0, 0, 0, 0, 0, 0].repeat(9);
    let quote = udp4().packet();
    for (name, frame, reason) in [
        ("TCP of 19", segment4(6, &[0; 19]), Malformed::TruncatedTcp),
        ("TCP header of 16", short_header, Malformed::ShortTcpHeader),
        ("TCP options", long_header, Malformed::TruncatedTcp),
        ("UDP of 7", segment4(17, &[0; 7]), Malformed::TruncatedUdp),
        ("UDP length of 7", segment4(17, &[0, 1, 0, 1, 0, 7, 0, 0]), Malformed::WrongUdpLength),
        ("UDP length of 9", segment4(17, &[0, 1, 0, 1, 0, 9, 0, 0]), Malformed::WrongUdpLength),
        ("ICMP of 7", segment4(1, &[8, 0, 0, 0, 0, 0, 0]), Malformed::TruncatedIcmp),
        ("no quote", segment4(1, &[3, 0, 0, 0, 0, 0, 0, 0]), Malformed::BadQuote),
        ("cut quote", Frame::error("203.0.113.1", V4.0, 11, &quote[..22]), Malformed::BadQuote),
        ("extension", segment6(60, &[17, 9, 0, 0, 0, 0, 0, 0]), Malformed::TruncatedExtension),
        ("no extension", segment6(0, &[]), Malformed::TruncatedExtension),
        ("many", segment6(60, &many), Malformed::TooManyExtensions),
        ("misplaced", segment6(60, &[0, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0]), Malformed::MisplacedHopByHop),
    ] {
        let packet = parse(&frame.bytes()).unwrap();
        assert_eq!(packet.transport, Transport::Malformed(reason), "{name}");
    }
}
