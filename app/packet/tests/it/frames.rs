//! Frames that no host sends: the program runs over them by BPF_PROG_TEST_RUN, in the router's namespace.

use std::path::Path;

use sallyport_xdp::{Reason, Router};

use crate::rig::{Rig, done};

/// The names of the variables by which the outer test tells the inner one where the router stands.
const PINS: &str = "PACKET_TEST_PINS";
const PORT: &str = "PACKET_TEST_PORT";
const MAC: &str = "PACKET_TEST_MAC";
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

#[test]
fn malformed_and_truncated_frames_have_their_reasons() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.up(&["--dev", "d0,d1"]);
    let link: serde_json::Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    let test = std::env::current_exe().unwrap();
    let mut inner = rig.inside("dut", test.to_str().unwrap());
    inner.args(["--exact", "frames::inside_the_namespace", "--ignored", "--nocapture"]);
    inner
        .env(PINS, rig.pins())
        .env(PORT, link[0]["ifindex"].to_string())
        .env(MAC, link[0]["address"].as_str().unwrap());
    let printed = done(&mut inner);
    assert!(printed.contains("1 passed"), "{printed}");
    assert!(rig.count("d0", "truncated") > 0, "the router itself ran over frames, and counted");
}

/// A frame of IPv4 to 192.0.2.7 by UDP, without its sum.
fn v4(mac: &[u8], total: u16, ttl: u8, length: usize) -> Vec<u8> {
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, ttl, 17, 0, 0, 10, 0, 0, 2, 192, 0, 2, 7, 0x13, 0x88, 0, 9, 0, 8, 0, 0]);
    frame.resize(length, 0);
    frame
}

/// Sets the sum of the header.
fn sum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let end = 14 + usize::from(frame[14] & 15).clamp(5, 11) * 4;
    let words: u32 = frame[14..end].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (words & 0xffff) + (words >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame
}

/// A frame of IPv6 to fd00:2::7 by UDP.
fn v6(mac: &[u8], payload: u16, length: usize) -> Vec<u8> {
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(payload.to_be_bytes());
    frame.extend([17, 64]);
    frame.extend("fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame.extend("fd00:2::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame.extend([0x13, 0x88, 0, 9, 0, 8, 0, 0]);
    frame.resize(length, 0);
    frame
}

/// The frame to the router itself.
fn local(mut frame: Vec<u8>) -> Vec<u8> {
    frame[30..34].copy_from_slice(&[10, 0, 1, 1]);
    frame
}

fn changed(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

#[test]
#[ignore = "malformed_and_truncated_frames_have_their_reasons runs it in the namespace of its router"]
fn inside_the_namespace() {
    let variable = |name| std::env::var(name).unwrap();
    let router = Router::new(Path::new(&variable(PINS)));
    let port: u32 = variable(PORT).parse().unwrap();
    let mac: Vec<u8> = variable(MAC).split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let good = sum(v4(&mac, 28, 64, 60));
    let good6 = v6(&mac, 8, 62);
    let tagged = [&good[..12], &[0x81, 0, 0, 0], &good[12..]].concat();
    let cases = [
        ("whole", good.clone(), Reason::Forwarded),
        ("whole, with the tag of a priority", tagged.clone(), Reason::Forwarded),
        ("whole, IPv6", good6.clone(), Reason::Forwarded),
        ("ARP", changed(good.clone(), 13, 6), Reason::NotIp),
        ("another host's", changed(good.clone(), 5, mac[5] ^ 1), Reason::OtherHost),
        ("without a header of IP", good[..20].to_vec(), Reason::Truncated),
        ("half a tag", tagged[..16].to_vec(), Reason::Truncated),
        ("shorter than its length", sum(v4(&mac, 500, 64, 60)), Reason::Truncated),
        ("a length below the header's", sum(v4(&mac, 19, 64, 60)), Reason::Malformed),
        ("version 5", changed(good.clone(), 14, 0x55), Reason::Malformed),
        ("a header of 16 bytes", changed(good.clone(), 14, 0x44), Reason::Malformed),
        ("a header beyond its length", changed(good.clone(), 14, 0x48), Reason::Malformed),
        ("a header beyond its frame", changed(good.clone(), 14, 0x4f), Reason::Truncated),
        ("options with a wrong sum", changed(v4(&mac, 46, 64, 60), 14, 0x46), Reason::Checksum),
        ("no time to live, for this machine", sum(local(v4(&mac, 28, 1, 60))), Reason::NotRouted),
        ("with options", sum(changed(v4(&mac, 46, 64, 60), 14, 0x46)), Reason::Options),
        ("a wrong sum", changed(good.clone(), 25, good[25] ^ 1), Reason::Checksum),
        ("from loopback", sum(changed(good.clone(), 26, 127)), Reason::Martian),
        ("from multicast", sum(changed(good.clone(), 26, 224)), Reason::Martian),
        ("to multicast", sum(changed(good.clone(), 30, 224)), Reason::NotUnicast),
        ("no time to live", sum(v4(&mac, 28, 0, 60)), Reason::Ttl),
        ("a fragment", sum(changed(good.clone(), 21, 9)), Reason::Forwarded),
        ("IPv6, half a header", good6[..40].to_vec(), Reason::Truncated),
        ("IPv6, shorter than its length", v6(&mac, 100, 62), Reason::Truncated),
        ("IPv6, version 4", changed(good6.clone(), 14, 0x40), Reason::Malformed),
        ("IPv6, options of hop by hop", changed(good6.clone(), 20, 0), Reason::Options),
        ("IPv6, from multicast", changed(good6.clone(), 22, 0xff), Reason::Martian),
    ];
    let frames: Vec<_> = cases.iter().map(|(_, frame, _)| frame.clone()).collect();
    let runner = router.runner().unwrap();
    let ran = router.run_frames(&frames, port).unwrap();
    for ((name, frame, wanted), (verdict, after)) in cases.iter().zip(ran) {
        let said = runner.explain(frame, port).unwrap();
        assert_eq!(said.reason, *wanted, "{name}");
        let expected = match wanted.action() {
            sallyport_xdp::Action::Forward => REDIRECT,
            sallyport_xdp::Action::Kernel => PASS,
            sallyport_xdp::Action::Drop => DROP,
        };
        assert_eq!(verdict, expected, "{name}");
        if verdict != REDIRECT {
            assert_eq!(after, *frame, "{name}: what is not forwarded is not changed");
        }
    }
    // Every beginning of a good frame is safe, and the time to live changes the sum rightly, whatever it is.
    let cut: Vec<_> = (14..good.len()).map(|length| good[..length].to_vec()).collect();
    for (frame, (verdict, _)) in cut.iter().zip(router.run_frames(&cut, port).unwrap()) {
        assert_eq!(verdict, if frame.len() < 42 { DROP } else { REDIRECT }, "{} bytes", frame.len());
    }
    let aged: Vec<_> = (2..=255).map(|ttl| sum(v4(&mac, 28, ttl, 60))).collect();
    for (before, (verdict, after)) in aged.iter().zip(router.run_frames(&aged, port).unwrap()) {
        assert_eq!((verdict, after[22]), (REDIRECT, before[22] - 1));
        assert_eq!(sum(after.clone()), after, "the sum of {} is right", before[22]);
    }
}
