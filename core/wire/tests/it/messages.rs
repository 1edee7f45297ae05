//! Control messages: valid messages survive encoding and decoding, and invalid ones are refused with a clear error.

use std::net::SocketAddr;

use proptest::prelude::*;
use sallyport_model::{LinkReport, LinkStatus, MachineId, TunnelId};
use sallyport_wire::{
    Associate, Associated, Attach, Attached, Carrier, Detach, EdgePlace, Edges, FailureReason, FrameHeader, FrameType,
    GoAway, Hello, Join, JoinNetwork, Links, NetworkJoined, NotAttached, Open, OpenFailure, Refusal, StreamProtocol,
    Violation, Welcome, frame::MAX_PACKETS_BYTES, message, packets,
};

/// The payload of the only frame in `frame`, whose header must be right.
fn payload(frame: &[u8], kind: FrameType, carrier: Carrier) -> &[u8] {
    let (header, payload) = frame.split_first_chunk().unwrap();
    let header = FrameHeader::decode(*header, carrier).unwrap();
    assert_eq!((header.kind, header.len as usize), (kind, payload.len()));
    payload
}

macro_rules! round_trip {
    ($message:expr, $name:ident, $kind:ident, $carrier:ident) => {{
        let mut frame = Vec::new();
        let message = &$message;
        message.encode(&mut frame);
        prop_assert_eq!(&$name::decode(payload(&frame, FrameType::$kind, Carrier::$carrier)).unwrap(), message);
    }};
}

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
        (any::<[u16; 8]>(), any::<u16>())
            .prop_map(|(ip, port)| SocketAddr::new(std::net::Ipv6Addr::from(ip).to_canonical(), port)),
    ]
}

/// An edge of this number.
fn place(number: u32) -> EdgePlace {
    let addresses = vec![SocketAddr::from((number.to_be_bytes(), 443))];
    EdgePlace { name: format!("e{number}").parse().unwrap(), region: format!("r{number}").parse().unwrap(), addresses }
}

#[test]
fn an_association_of_paths_is_asked_for_and_given() {
    let asked = Associate { tunnel: TunnelId::from_random([7; 16]), credential: "secret".into() };
    let mut frame = Vec::new();
    asked.encode(&mut frame);
    let (_, carrier) = FrameHeader::decode_first(*frame.first_chunk().unwrap()).unwrap();
    assert_eq!(carrier, Carrier::Association);
    assert_eq!(Associate::decode(payload(&frame, FrameType::Associate, carrier)).unwrap(), asked);
    assert!(!format!("{asked:?}").contains("secret"), "the credential is not printed");
    let mut frame = Vec::new();
    Associate { credential: "x".repeat(513), ..asked }.encode(&mut frame);
    let refused = Associate::decode(payload(&frame, FrameType::Associate, carrier)).unwrap_err();
    assert!(refused.to_string().contains("longer than 512 bytes"), "{refused}");
    assert!(Associate::decode(b"{}").is_err(), "nobody is asked for");
    let given = Associated { edge: [1; 8], connector: [2; 8], secret: [3; 32], port: 8_443 };
    let mut frame = Vec::new();
    given.encode(&mut frame);
    let fields = payload(&frame, FrameType::Associated, carrier);
    assert_eq!(Associated::decode(fields).unwrap(), given);
    assert_eq!(Associated::decode(&[fields, b"a later field"].concat()).unwrap(), given);
    assert!(Associated::decode(&fields[..fields.len() - 1]).is_err());
    assert!(!format!("{given:?}").contains("3, 3"), "the secret is not printed");
}

#[test]
fn a_machine_joins_a_network_and_learns_its_place() {
    let asked = JoinNetwork { machine: MachineId::from_random([7; 16]), credential: "secret".into() };
    let mut frame = Vec::new();
    asked.encode(&mut frame);
    let (_, carrier) = FrameHeader::decode_first(*frame.first_chunk().unwrap()).unwrap();
    assert_eq!(carrier, Carrier::Packets);
    assert_eq!(JoinNetwork::decode(payload(&frame, FrameType::JoinNetwork, carrier)).unwrap(), asked);
    assert!(!format!("{asked:?}").contains("secret"), "the credential is not printed");
    let mut frame = Vec::new();
    JoinNetwork { credential: "x".repeat(513), ..asked }.encode(&mut frame);
    let refused = JoinNetwork::decode(payload(&frame, FrameType::JoinNetwork, carrier)).unwrap_err();
    assert!(refused.to_string().contains("longer than 512 bytes"), "{refused}");

    let route = |number: u16| format!("fd00:20:{number:x}::/48").parse().unwrap();
    let mut joined = NetworkJoined {
        network: "n".repeat(63),
        machine: "m".repeat(63),
        addresses: vec!["10.20.0.1/16".parse().unwrap(), "fd00:20::1/64".parse().unwrap()],
        routes: (0..300).map(route).collect(),
        mtu_bytes: 1_400,
    };
    let mut frame = Vec::new();
    joined.encode(&mut frame);
    let read = NetworkJoined::decode(payload(&frame, FrameType::NetworkJoined, carrier)).unwrap();
    joined.routes.truncate(message::MAX_NETWORK_ROUTES);
    assert_eq!(read, joined, "the edge leaves out what does not fit");
    let three = r#"{"network":"n","machine":"m","addresses":["10.0.0.1/8","10.0.0.2/8","::1/8"],"mtu_bytes":1400}"#;
    assert!(NetworkJoined::decode(three.as_bytes()).unwrap_err().to_string().contains("more than 2 addresses"));
}

#[test]
fn the_longest_train_and_many_packets_cross_whole() {
    let train = vec![1; packets::MAX_PARCEL_BYTES];
    let ping = vec![2; 10 + 84];
    let mut parcels = vec![train.as_slice()];
    while parcels.iter().map(|parcel| packets::bytes_of(parcel.len())).sum::<usize>() + 96 <= MAX_PACKETS_BYTES {
        parcels.push(&ping);
    }
    let mut frame = Vec::new();
    packets::encode(parcels.iter().copied(), &mut frame);
    let payload = payload(&frame, FrameType::Packets, Carrier::Packets);
    let read: Vec<&[u8]> = packets::Parcels::of(payload).map(Result::unwrap).collect();
    assert_eq!(read, parcels);
    for wrong in [&payload[..payload.len() - 1], &[0, 19, 0], &[0], &[0; 12]] {
        let last = packets::Parcels::of(wrong).last().unwrap();
        let text = last.unwrap_err().to_string();
        assert!(text.contains("the length of a packet is wrong"), "{text}");
    }
    assert!(!packets::is_parcel(29) && !packets::is_parcel(packets::MAX_PARCEL_BYTES + 1));
}

#[test]
fn no_message_names_more_edges_than_its_frame_holds() {
    let long = |letter: &str, number: u32| format!("{}{number:02}", letter.repeat(30));
    let addresses: Vec<SocketAddr> = (0..9).map(|port| SocketAddr::from(([0xfd12; 8], 60_000 + port))).collect();
    let far = |number: u32| EdgePlace {
        name: long("e", number).parse().unwrap(),
        region: long("r", number).parse().unwrap(),
        addresses: addresses.clone(),
    };
    let mut frame = Vec::new();
    Edges { edges: (0..99).map(far).collect(), leave: true }.encode(&mut frame);
    let edges = Edges::decode(payload(&frame, FrameType::Edges, Carrier::Control)).unwrap();
    assert_eq!((edges.edges.len(), edges.edges[0].addresses.len()), (message::MAX_EDGE_PLACES, 4));
    assert!(frame.len() < 12_000, "there is room beside it in WELCOME: {} bytes", frame.len());
    assert!(Edges::decode(b"{}").unwrap().edges.is_empty());
    assert!(Edges::decode(br#"{"edges":[{"name":"E","region":"eu","addresses":[]}]}"#).is_err(), "no name of an edge");
}

/// A link of this name and these counts.
pub(crate) fn link(name: &str, number: u64) -> LinkReport {
    LinkReport {
        name: name.to_owned(),
        local: Some(std::net::Ipv6Addr::from([0xfd12; 8]).into()),
        status: LinkStatus::Silent,
        rtt_us: Some(number),
        loss_permille: Some(number as u16),
        bytes_sent: number,
        bytes_received: number,
        path_mtu_bytes: Some(number as u32),
        header_bytes: Some(number as u32),
        is_metered: number.is_multiple_of(2),
        is_standby: number % 2 == 1,
    }
}

#[test]
fn no_message_names_more_links_than_its_frame_holds() {
    let mut frame = Vec::new();
    Links { links: (0..99).map(|_| link(&"\"".repeat(99), u64::MAX)).collect() }.encode(&mut frame);
    let Links { links } = Links::decode(payload(&frame, FrameType::Links, Carrier::Control)).unwrap();
    assert_eq!((links.len(), links[0].name.len()), (message::MAX_LINK_REPORTS, message::MAX_LINK_NAME_BYTES));
    let later = br#"{"links":[{"name":"a\u001b[2J","status":"parked","bytes_sent":1,"bytes_received":2,"x":3}],"y":4}"#;
    let Links { links } = Links::decode(later).unwrap();
    assert_eq!((links[0].name.as_str(), links[0].status, links[0].rtt_us), ("a [2J", LinkStatus::Unknown, None));
    assert!(Links::decode(b"{}").is_err() && Links::decode(br#"{"links":[{"name":"a"}]}"#).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn control_messages_round_trip(
        versions in prop::collection::vec(any::<u16>(), 0..9),
        id in any::<[u8; 16]>(),
        secret in any::<[u8; 32]>(),
        number in any::<u64>(),
        flag in any::<bool>(),
        code in "[a-z-]{0,64}",
        text in "[^\\p{C}]{0,200}",
    ) {
        let tunnel = TunnelId::from_bytes(id);
        let small = number as u32;
        let hello = Hello {
            versions,
            agent: code.clone(),
            connector: id,
            max_legs: number as u16,
            features: vec![code.clone()],
            host: flag.then(|| format!("h{code}").chars().take(message::MAX_HOST_BYTES).collect()),
        };
        round_trip!(hello, Hello, Hello, Control);
        let welcome = Welcome {
            version: 1,
            session: id,
            leg_secret: secret,
            keepalive_ms: number,
            missed_limit: small,
            stream_window: small,
            max_streams: small,
            edge: Some("eu-1".parse().unwrap()),
            region: Some("eu".parse().unwrap()),
            edges: vec![place(small)],
            leave: flag,
            link_reports: flag,
        };
        let shown = format!("{welcome:?}");
        prop_assert!(!shown.contains("leg_secret"));
        round_trip!(welcome, Welcome, Welcome, Control);
        let refusal = Refusal { code: code.clone(), message: text.clone(), retry: flag };
        round_trip!(refusal, Refusal, Refused, Leg);
        round_trip!(NotAttached { tunnel, refusal: refusal.clone() }, NotAttached, NotAttached, Control);
        let attach = Attach {
            tunnel,
            credential: text.clone(),
            request_log: flag,
            home: flag.then(|| "eu".parse().unwrap()),
            origin: flag.then(|| "localhost:3000".parse().unwrap()),
            spread: flag,
        };
        prop_assume!(text.len() <= message::MAX_CREDENTIAL_BYTES);
        let shown = format!("{attach:?}");
        prop_assert!(text.len() < 8 || !shown.contains(&text));
        round_trip!(attach, Attach, Attach, Control);
        round_trip!(Attached { tunnel, url: text.clone(), datagrams: flag }, Attached, Attached, Control);
        round_trip!(Detach { tunnel, code: code.clone(), message: text.clone() }, Detach, Detach, Control);
        round_trip!(Edges { edges: vec![place(small), place(7)], leave: flag }, Edges, Edges, Control);
        round_trip!(Links { links: vec![link(&code, number), link("eth0", 0)] }, Links, Links, Control);
        round_trip!(GoAway { code, message: text }, GoAway, GoAway, Control);
        round_trip!(Join { session: id, leg_secret: secret }, Join, Join, Leg);
    }

    #[test]
    fn stream_messages_round_trip(
        id in any::<[u8; 16]>(),
        protocol in prop::sample::select(vec![StreamProtocol::Raw, StreamProtocol::Http1, StreamProtocol::Http2]),
        client in address(),
        destination in prop::option::of(address()),
        opened_at_us in any::<u64>(),
        server_name in "[a-z0-9.-]{0,255}",
        reason in prop::sample::select(vec![
            FailureReason::Refused, FailureReason::TimedOut, FailureReason::Unresolved, FailureReason::Tls,
            FailureReason::Draining, FailureReason::Other,
        ]),
        text in "[^\\p{C}]{0,120}",
    ) {
        let open = Open { tunnel: TunnelId::from_bytes(id), protocol, client, destination, opened_at_us, server_name };
        round_trip!(open, Open, Open, Leg);
        round_trip!(OpenFailure { reason, message: text.clone() }, OpenFailure, Failed, Leg);
    }

    #[test]
    fn texts_of_any_length_fit_into_their_frames_and_have_no_control_characters(
        text in "\\PC{0,40}|[\\x00-\\x20]{0,9}", times in 0..900usize
    ) {
        let long = text.repeat(times);
        let mut frame = Vec::new();
        Refusal::new(&long, &long, true).encode(&mut frame);
        let refusal = Refusal::decode(payload(&frame, FrameType::Refused, Carrier::Leg)).unwrap();
        prop_assert!(refusal.message.len() <= message::MAX_TEXT_BYTES && refusal.code.len() <= message::MAX_CODE_BYTES);
        prop_assert!(!refusal.message.contains(char::is_control));
        let mut frame = Vec::new();
        OpenFailure::new(FailureReason::Tls, &long).encode(&mut frame);
        let failure = OpenFailure::decode(payload(&frame, FrameType::Failed, Carrier::Leg)).unwrap();
        prop_assert!(failure.message.len() <= 512 && !failure.message.contains(char::is_control));
    }

    #[test]
    fn arbitrary_payloads_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = (Hello::decode(&bytes), Welcome::decode(&bytes), Refusal::decode(&bytes), Attach::decode(&bytes));
        let _ = (Attached::decode(&bytes), NotAttached::decode(&bytes), Detach::decode(&bytes));
        let _ = (GoAway::decode(&bytes), Join::decode(&bytes), OpenFailure::decode(&bytes));
        if let Ok(open) = Open::decode(&bytes) {
            let mut frame = Vec::new();
            open.encode(&mut frame);
            prop_assert_eq!(Open::decode(&frame[4..]).unwrap(), open);
        }
    }
}

#[test]
fn members_that_a_later_version_adds_are_ignored() {
    let text = concat!(
        r#"{"versions":[1,2],"agent":"a\u001b[31m","connector":"00112233445566778899aabbccddeeff","#,
        r#""max_legs":9,"x":{"y":[]}}"#
    );
    let hello = Hello::decode(text.as_bytes()).unwrap();
    assert_eq!((hello.versions, hello.agent.as_str()), (vec![1, 2], "a [31m"));
    assert_eq!(hello.connector[..3], [0, 0x11, 0x22]);
}

#[test]
fn unreadable_messages_are_refused_with_a_sentence() {
    for (text, hint) in [
        (&b"{"[..], "EOF"),
        (br#"{"versions":[1]}"#, "missing field"),
        (br#"{"versions":[99999],"agent":"","connector":"","max_legs":0}"#, "99999"),
        (br#"{"versions":[],"agent":"","connector":"zz","max_legs":0}"#, "32 hexadecimal digits"),
        (br#"{"versions":[],"agent":"","connector":"+0112233445566778899aabbccddeeff","max_legs":0}"#, "hexadecimal"),
    ] {
        let error = Hello::decode(text).unwrap_err().to_string();
        assert!(error.starts_with("the peer sent HELLO that cannot be read: ") && error.contains(hint), "{error}");
    }
    let long = format!(r#"{{"tunnel":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","credential":"{}"}}"#, "x".repeat(513));
    assert!(matches!(Attach::decode(long.as_bytes()), Err(Violation::BadMessage { .. })));
    let mut open = vec![0; 44];
    open[16] = 9;
    assert!(Open::decode(&open).unwrap_err().to_string().contains("9 is no protocol of an origin"));
    let mut open = vec![0; 44];
    open[43] = 1;
    assert!(Open::decode(&open).unwrap_err().to_string().contains("should have 1 bytes, not 0"));
    assert!(Open::decode(&[0; 45]).unwrap_err().to_string().contains("what follows the server name is too short"));
}

/// Members that a later version adds are ignored, and those that an earlier version does not send have their default.
#[test]
fn attachments_of_other_versions_are_read() {
    let id = "00000000-0000-4000-8000-000000000001";
    let earlier = format!(r#"{{"tunnel":"{id}","credential":"c"}}"#);
    let attach = Attach::decode(earlier.as_bytes()).unwrap();
    assert!(!attach.spread && !attach.request_log && attach.origin.is_none());
    let later = format!(r#"{{"tunnel":"{id}","credential":"c","spread":true,"of_a_later_version":[1]}}"#);
    assert!(Attach::decode(later.as_bytes()).unwrap().spread);
    let encoded = |spread| {
        let mut out = Vec::new();
        Attach { spread, ..attach.clone() }.encode(&mut out);
        String::from_utf8_lossy(&out).contains("spread")
    };
    assert!(encoded(true) && !encoded(false), "without the flag nothing changes on the wire");
    let wrong = format!(r#"{{"tunnel":"{id}","credential":"c","spread":"yes"}}"#);
    assert!(Attach::decode(wrong.as_bytes()).is_err());
}
