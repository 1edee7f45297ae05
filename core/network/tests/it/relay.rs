//! Packets of machines, with and without a policy.

use std::time::{Duration, Instant};

use sallyport_network::relay::{DropReason, MTU_BYTES, Relay, Verdict, place_of};
use sallyport_packet_model::testing::Frame;
use sallyport_wire::frame::VIRTIO_HEADER_BYTES;

use crate::packet_fuzz::{POLICY, machine, office};

const A: &str = "10.20.0.1";
const B: &str = "10.20.0.2";
const C: &str = "10.20.0.3";

/// A complete packet as a TUN device gives it.
pub(crate) fn parcel(frame: &Frame) -> Vec<u8> {
    [vec![0; VIRTIO_HEADER_BYTES], frame.packet()].concat()
}

/// The number of the machine that gets the packet, or the word of the reason.
fn judge(relay: &mut Relay, from: u8, frame: &Frame, now: Instant) -> Result<u8, &'static str> {
    judge_parcel(relay, from, &parcel(frame), now)
}

fn judge_parcel(relay: &mut Relay, from: u8, parcel: &[u8], now: Instant) -> Result<u8, &'static str> {
    match relay.judge(machine(from), parcel, now) {
        Verdict::Forward(to) => Ok((1..=4).find(|number| machine(*number) == to).unwrap()),
        Verdict::Drop(reason) => Err(DropReason::WORDS[reason.place()]),
    }
}

fn udp(from: &str, to: &str, port: u16) -> Frame {
    Frame::udp((from, 5_000), (to, port), b"x")
}

#[test]
fn packets_go_to_the_machine_with_the_longest_prefix_and_come_from_their_own() {
    let now = Instant::now();
    let mut network = office(None);
    let mut relay = Relay::new(&network, now);
    let mut of = |from, frame: &Frame| judge(&mut relay, from, frame, now);
    assert_eq!(of(1, &udp(A, B, 9)), Ok(2));
    assert_eq!(of(1, &udp("fd00:20::1", "fd00:20::3", 9)), Ok(3));
    assert_eq!(of(1, &udp(A, "10.30.7.7", 9)), Ok(2), "behind b");
    assert_eq!(of(2, &udp("fd00:30::9", "fd00:20::1", 9)), Ok(1), "from behind b");
    assert_eq!(of(1, &udp(A, "192.0.2.9", 9)), Ok(3), "through the exit");
    let answer = Frame::udp(("192.0.2.9", 9), (A, 5_000), b"x");
    assert_eq!(of(3, &answer), Ok(1), "back through the exit");
    assert_eq!(of(3, &udp("192.0.2.9", A, 9)), Err("denied"), "nobody outside begins a flow");
    assert_eq!(of(1, &udp(A, "10.20.0.77", 9)), Err("no-destination"), "nobody has it, and the exit is outside");
    assert_eq!(of(1, &udp(A, A, 9)), Err("no-destination"));
    for foreign in [B, "10.30.0.1", "192.0.2.9", "0.0.0.0", "127.0.0.1"] {
        assert_eq!(of(1, &udp(foreign, C, 9)), Err("spoofed"), "{foreign}");
    }
    assert_eq!(of(3, &udp("127.0.0.1", A, 9)), Err("spoofed"), "an exit sends from everywhere outside alone");
    assert_eq!(of(4, &udp(A, B, 9)), Err("spoofed"), "no machine of the network");
    for group in ["224.0.0.1", "255.255.255.255", "10.20.0.255"] {
        assert_eq!(of(1, &udp(A, group, 9)), Err("multicast"), "{group}");
    }
    assert_eq!(of(1, &Frame::new("fd00:20::1", "ff02::2", 58, vec![133, 0, 0, 0, 0, 0, 0, 0])), Err("multicast"));

    // A longer route of c takes a part of b's; then c is removed while it talks.
    network.machines[2].routes = vec!["10.30.7.0/24".parse().unwrap()];
    relay.set_network(&network);
    assert_eq!(judge(&mut relay, 1, &udp(A, "10.30.7.7", 9), now), Ok(3));
    network.machines.truncate(2);
    relay.set_network(&network);
    assert_eq!(judge(&mut relay, 1, &udp(A, "10.30.7.7", 9), now), Ok(2));
    assert_eq!(judge(&mut relay, 3, &udp(C, A, 9), now), Err("spoofed"));
    assert_eq!(judge(&mut relay, 1, &udp(A, C, 9), now), Err("no-destination"));
}

#[test]
fn what_is_no_packet_or_too_long_ends_here_and_trains_go_whole() {
    let now = Instant::now();
    let mut relay = Relay::new(&office(None), now);
    let whole = parcel(&udp(A, B, 9));
    assert_eq!(judge_parcel(&mut relay, 1, &whole, now), Ok(2));
    for end in 0..whole.len() {
        assert_eq!(judge_parcel(&mut relay, 1, &whole[..end], now), Err("malformed"), "{end} bytes");
    }
    assert_eq!(judge_parcel(&mut relay, 1, &[whole.as_slice(), &[0]].concat(), now), Err("malformed"), "a byte more");
    let payload = |bytes: u16| vec![1; usize::from(bytes - 40)];
    let mut full = Frame::tcp((A, 1), (B, 2), 16, &payload(MTU_BYTES));
    assert_eq!(judge(&mut relay, 1, &full, now), Ok(2));
    full = Frame::tcp((A, 1), (B, 2), 16, &payload(MTU_BYTES + 1));
    assert_eq!(judge(&mut relay, 1, &full, now), Err("oversize"));

    let train = |header: [u8; 10], frame: &Frame| [header.to_vec(), frame.packet()].concat();
    let long = Frame::tcp((A, 1), (B, 2), 16, &[1; 60_000]);
    let [low, high] = (MTU_BYTES - 40).to_le_bytes();
    assert_eq!(judge_parcel(&mut relay, 1, &train([1, 1, 40, 0, low, high, 20, 0, 16, 0], &long), now), Ok(2));
    let datagrams = udp_train();
    assert_eq!(judge_parcel(&mut relay, 1, &train([1, 5, 28, 0, 200, 4, 20, 0, 6, 0], &datagrams), now), Ok(2));
    for (wrong, header) in [
        ("segments beyond the MTU", [1, 1, 40, 0, low + 1, high, 20, 0, 16, 0]),
        ("a train without segments", [1, 1, 40, 0, 0, 0, 20, 0, 16, 0]),
        ("a train with a finished checksum", [0, 1, 40, 0, low, high, 20, 0, 16, 0]),
        ("another family", [1, 4, 40, 0, low, high, 20, 0, 16, 0]),
        ("another protocol", [1, 5, 40, 0, low, high, 20, 0, 16, 0]),
        ("an unknown kind", [1, 3, 40, 0, low, high, 20, 0, 16, 0]),
        ("an unknown flag", [9, 1, 40, 0, low, high, 20, 0, 16, 0]),
        ("segments of a byte", [1, 1, 40, 0, 1, 0, 20, 0, 16, 0]),
        ("a checksum over the ports", [1, 1, 40, 0, low, high, 20, 0, 2, 0]),
        ("a checksum in the header of IP", [1, 1, 40, 0, low, high, 10, 0, 0, 0]),
        ("a checksum behind the end", [1, 1, 40, 0, low, high, 255, 255, 255, 255]),
    ] {
        let expected = if wrong.contains("MTU") { "oversize" } else { "malformed" };
        assert_eq!(judge_parcel(&mut relay, 1, &train(header, &long), now), Err(expected), "{wrong}");
    }
}

#[test]
fn a_checksum_is_finished_where_its_transport_has_one_and_nowhere_else() {
    let now = Instant::now();
    let mut relay = Relay::new(&office(None), now);
    let mut of = |frame: &Frame, start: u8, offset: u8| {
        let header = [1, 0, 0, 0, 0, 0, start, 0, offset, 0];
        judge_parcel(&mut relay, 1, &[header.to_vec(), frame.packet()].concat(), now)
    };
    let (datagram, segment) = (udp(A, B, 53), Frame::tcp((A, 1), (B, 2), 16, b"data"));
    assert_eq!(of(&datagram, 20, 6), Ok(2));
    assert_eq!(of(&segment, 20, 16), Ok(2));
    // The place is a port, a part of the data, and that of the other transport.
    for (frame, start, offset) in [(&datagram, 20, 2), (&datagram, 22, 6), (&segment, 20, 6), (&datagram, 20, 16)] {
        assert_eq!(of(frame, start, offset), Err("malformed"), "{start} and {offset}");
    }
    let mut fragment = datagram;
    fragment.fragment = 0x2000;
    assert_eq!(of(&fragment, 20, 6), Err("malformed"));
    assert_eq!(of(&Frame::echo(A, B, false, 7), 20, 2), Err("malformed"));
}

fn udp_train() -> Frame {
    Frame::udp((A, 1), (B, 2), &[1; 20_000])
}

#[test]
fn a_policy_lets_answers_and_errors_of_allowed_flows_pass_until_they_are_idle() {
    let start = Instant::now();
    let mut relay = Relay::new(&office(Some(POLICY)), start);
    let (question, answer) = (udp(A, B, 53), Frame::udp((B, 53), (A, 5_000), b"x"));
    let error = |about: &Frame| Frame::error(B, A, 3, &about.packet()[..28]);
    assert_eq!(judge(&mut relay, 2, &answer, start), Err("denied"), "nobody has asked");
    assert_eq!(judge(&mut relay, 2, &error(&question), start), Err("denied"), "an error about nothing");
    assert_eq!(judge(&mut relay, 1, &question, start), Ok(2));
    assert_eq!(judge(&mut relay, 2, &answer, start), Ok(1));
    assert_eq!(judge(&mut relay, 2, &error(&question), start), Ok(1));
    assert_eq!(judge(&mut relay, 2, &error(&udp(A, B, 54)), start), Err("denied"));
    let of_third = Frame::error(C, A, 3, &question.packet()[..28]);
    assert_eq!(judge(&mut relay, 3, &of_third, start), Err("denied"), "c had no part in the flow");
    assert_eq!(judge(&mut relay, 2, &Frame::error(B, C, 3, &question.packet()[..28]), start), Err("denied"));
    assert_eq!(judge(&mut relay, 1, &Frame::echo(A, B, false, 7), start), Ok(2));
    assert_eq!(judge(&mut relay, 2, &Frame::echo(B, A, true, 7), start), Ok(1));
    assert_eq!(judge(&mut relay, 2, &Frame::echo(B, A, true, 8), start), Err("denied"));
    // A flow that talks once a minute stays; after two silent minutes the flow is forgotten.
    let mut now = start;
    for _ in 0..5 {
        now += Duration::from_secs(60);
        assert_eq!(judge(&mut relay, 2, &answer, now), Ok(1));
    }
    assert_eq!(judge(&mut relay, 2, &answer, now + Duration::from_secs(121)), Err("denied"));
    let telnet = Frame::tcp((A, 5_000), (B, 23), 2, b"");
    let denied = relay.judge(machine(1), &parcel(&telnet), now);
    assert!(
        matches!(denied, Verdict::Drop(DropReason::Denied(Some(rule))) if rule.as_str() == "no-telnet"),
        "{denied:?}"
    );
    assert_eq!(relay.judge(machine(2), &parcel(&udp(B, C, 53)), now), Verdict::Drop(DropReason::Denied(None)));
}

#[test]
fn later_fragments_follow_their_first_one() {
    let now = Instant::now();
    let mut relay = Relay::new(&office(Some(POLICY)), now);
    let with = |fragment: u16, port: u16| {
        let mut frame = udp(A, B, port);
        frame.fragment = fragment;
        frame
    };
    let (more, offset) = (0x2000, 100);
    assert_eq!(judge(&mut relay, 1, &with(offset, 53), now), Err("denied"));
    assert_eq!(judge(&mut relay, 1, &with(more, 54), now), Err("denied"));
    assert_eq!(judge(&mut relay, 1, &with(more, 53), now), Ok(2));
    assert_eq!(judge(&mut relay, 1, &with(offset, 53), now), Ok(2));

    // The answer comes in fragments, and again after the network has changed.
    let answer = |fragment: u16| {
        let mut frame = Frame::udp((B, 53), (A, 5_000), b"x");
        frame.fragment = fragment;
        frame
    };
    for _ in 0..2 {
        assert_eq!(judge(&mut relay, 2, &answer(offset), now), Err("denied"), "its first fragment has not come");
        assert_eq!(judge(&mut relay, 2, &answer(more), now), Ok(1));
        assert_eq!(judge(&mut relay, 2, &answer(offset), now), Ok(1));
        relay.set_network(&office(Some(POLICY)));
    }
}

#[test]
fn a_changed_policy_cuts_what_it_does_not_allow_and_nothing_else() {
    let now = Instant::now();
    let mut relay = Relay::new(&office(Some(POLICY)), now);
    let (web, dns) = (Frame::tcp((A, 5_000), (B, 443), 2, b""), udp(A, B, 53));
    let (web_back, dns_back) = (Frame::tcp((B, 443), (A, 5_000), 18, b""), Frame::udp((B, 53), (A, 5_000), b"x"));
    for (from, frame) in [(1, &web), (1, &dns), (2, &web_back), (2, &dns_back)] {
        assert!(judge(&mut relay, from, frame, now).is_ok());
    }
    relay.set_network(&office(Some(&POLICY.replace("\"udp/53\", ", ""))));
    assert_eq!(judge(&mut relay, 1, &dns, now), Err("denied"));
    assert_eq!(judge(&mut relay, 2, &dns_back, now), Err("denied"));
    assert_eq!(judge(&mut relay, 2, &web_back, now), Ok(1), "still allowed");
    relay.set_network(&office(Some("no policy")));
    assert_eq!(judge(&mut relay, 2, &web_back, now), Err("denied"), "a policy that cannot be read allows nothing");
    relay.set_network(&office(None));
    assert_eq!(judge(&mut relay, 2, &web_back, now), Ok(1), "without a policy each may talk to each");
}

#[test]
fn a_flood_of_flows_keeps_the_table_within_its_bound() {
    let now = Instant::now();
    let mut relay = Relay::new(&office(Some(POLICY)), now);
    let kept = udp(A, B, 53);
    for source in 0..70_000_u32 {
        let port = (source % 65_536) as u16;
        let from = if source < 65_536 { A } else { "fd00:20::1" };
        let to = if source < 65_536 { B } else { "fd00:20::2" };
        assert_eq!(judge(&mut relay, 1, &Frame::udp((from, port), (to, 53), b"x"), now), Ok(2));
        if source % 10_000 == 0 {
            assert_eq!(judge(&mut relay, 1, &kept, now), Ok(2));
        }
    }
    assert_eq!(judge(&mut relay, 2, &Frame::udp((B, 53), (A, 5_000), b"x"), now), Ok(1), "a flow that is used stays");
    assert_eq!(
        judge(&mut relay, 2, &Frame::udp((B, 53), (A, 1), b"x"), now),
        Err("denied"),
        "the oldest are forgotten"
    );
}

#[test]
fn a_machine_is_told_its_place() {
    let network = office(None);
    let place = place_of(&network, machine(1)).unwrap();
    assert_eq!((place.network.as_str(), place.machine.as_str()), ("office", "a"));
    let shown = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&place.addresses), ["10.20.0.1/24", "fd00:20::1/64"]);
    assert_eq!(shown(&place.routes), ["10.30.0.0/16", "fd00:30::/48"]);
    assert_eq!(shown(&place_of(&network, machine(2)).unwrap().routes), [""; 0], "not its own");
    assert_eq!(place_of(&network, machine(9)), None);
}
