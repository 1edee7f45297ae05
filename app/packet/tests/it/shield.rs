//! The shield: limits of sources at a balancer, and SYN cookies at an edge, under floods and against their models.

use std::{
    net::TcpListener,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use sallyport_packet_model::balance::{
    Arrival, BalanceConfig, Encapsulation, Numbers, Outer, SteerReason, Steering, SynCookies, syn_cookie_answer,
    syn_cookie_of, unwrap, wrap,
};
use sallyport_xdp::balance::{Balancer, Decap};

use crate::{
    balance_model::{CONFIG, DROP, PASS, PINS, PORT, REDIRECT, TX, inner, mac, variable},
    model_frames::Frame,
    rig::{done, text},
    site::{SOURCE4, Site, Talker, VIRTUAL4, VIRTUAL6},
};

/// Real connections beside a flood.
const CONNECTIONS: usize = 60;
/// The SYNs a second that a kernel gets.
const SYNS: u32 = 50;

/// Starts a flood of SYNs from the client's link, as fast as the generator can.
fn flood(site: &Site, source: &str, dest: &str) -> u32 {
    let mac = hex(&site.link("lb", "b0").1);
    let args = ["generate", "--dev", "c0", "--to", &mac, "--proto", "tcp", "--src", source, "--dst", dest];
    let mut flood = site.packet("cl", &[&args[..], &["--dport", "80", "--duration", "120s"]].concat());
    let child = flood.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = child.id();
    site.keep(child);
    id
}

/// A counter of the kernel of a machine.
fn counter(site: &Site, name: &str, counter: &str) -> u64 {
    let shown = done(site.inside(name, "cat").arg("/proc/thread-self/net/netstat"));
    let mut lines = shown.lines().filter_map(|line| line.strip_prefix("TcpExt: ")).map(|line| line.split(' '));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names.zip(values).find(|(name, _)| *name == counter);
    found.unwrap().1.parse().unwrap()
}

fn syncookies(site: &Site, name: &str) -> String {
    done(site.inside(name, "sysctl").args(["-n", "net.ipv4.tcp_syncookies"])).trim().to_owned()
}

fn alive(talker: &mut Talker) -> u64 {
    talker.say("ask")["alive"].as_u64().unwrap()
}

#[test]
fn a_flood_of_syns_reaches_no_queue_and_real_connections_go_on() {
    let Some(site) = Site::new(1) else { return };
    site.edges_up([1], &["--syn-cookies", &SYNS.to_string()]);
    site.balance(&site.config("", &[(1, "")]));
    assert_eq!(syncookies(&site, "e1"), "2");
    let mut before = site.hold(VIRTUAL4, 5);
    before.hear();
    for (address, source) in [(VIRTUAL4, "198.18.0.0/16"), (VIRTUAL6, "2001:2::/112")] {
        let (start, sent, asked) =
            (Instant::now(), site.count("e1", "cookie-sent"), counter(&site, "e1", "SyncookiesSent"));
        let taken = counter(&site, "e1", "SyncookiesRecv");
        let id = flood(&site, source, address);
        site.wait_for("a flood", || site.count("e1", "cookie-sent") > sent + 10_000);
        let opened = Instant::now();
        let mut talker = site.hold(address, CONNECTIONS);
        assert_eq!(talker.hear()["edges"]["e1"], CONNECTIONS, "all of them opened during the flood");
        let took = opened.elapsed();
        assert_eq!(alive(&mut talker), CONNECTIONS as u64, "none of them is broken");
        assert_eq!(alive(&mut before), 5, "nor those from before");
        let queued = done(site.inside("e1", "ss").args(["-Htn", "state", "syn-recv"]));
        assert_eq!(queued.lines().count(), 0, "the kernel's queue is empty: {queued}");
        site.end(id);
        let seconds = start.elapsed().as_secs() + 2;
        let (sent, asked) = (site.count("e1", "cookie-sent") - sent, counter(&site, "e1", "SyncookiesSent") - asked);
        let taken = counter(&site, "e1", "SyncookiesRecv") - taken;
        println!("{address}: {sent} SYNs answered by XDP, {asked} by the kernel in {seconds} s, {took:?} to open");
        assert!(asked <= u64::from(SYNS) * seconds, "the kernel had {asked} SYNs in {seconds} s");
        assert!(taken >= CONNECTIONS as u64, "the kernel takes answers to cookies: {taken}");
        assert_eq!(alive(&mut talker), CONNECTIONS as u64);
    }
    // Where nobody listens, nobody answers: the kernel refuses.
    let refused = site.python("cl", &["hold", VIRTUAL4, "81", "1"]).output().unwrap();
    assert!(!refused.status.success());
    site.json("e1", &["decap", "down"]);
    assert_eq!(syncookies(&site, "e1"), "1", "the setting is as it was");
}

#[test]
fn a_limit_cuts_its_source_alone() {
    let Some(site) = Site::new(1) else { return };
    site.edges_up([1], &[]);
    site.balance(&site.config("[shield]\npackets = 2000\nconnections = 1000", &[(1, "")]));
    site.batch("cl", "addr add 10.1.0.3/24 dev c0\n");
    let mut talker = site.hold(VIRTUAL4, 10);
    talker.hear();
    let id = flood(&site, "10.1.0.3", VIRTUAL4);
    site.wait_for("a limit", || site.count("lb", "limit") > 10_000);
    // What is dropped can be looked at, and is of one source.
    let dump = ["dump", "--of", "balance", "--reason", "limit", "--sample", "100", "--count", "20", "-o", "json"];
    let shown = done(&mut site.packet("lb", &dump));
    assert_eq!(shown.lines().count(), 20, "{shown}");
    assert!(shown.lines().all(|line| line.contains("10.1.0.3.") && line.contains("limit")), "{shown}");
    let mut others = site.hold(VIRTUAL4, CONNECTIONS);
    assert_eq!(others.hear()["edges"]["e1"], CONNECTIONS, "another source is served");
    assert_eq!((alive(&mut others), alive(&mut talker)), (CONNECTIONS as u64, 10));
    site.end(id);
    let counts = site.json("lb", &["balance", "show", "drops"]);
    assert!(counts.as_array().unwrap().iter().any(|count| count["reason"] == "limit"), "{counts}");
}

#[test]
fn new_connections_have_a_limit_of_their_own_and_off_is_off() {
    let Some(site) = Site::new(1) else { return };
    site.edges_up([1], &[]);
    site.resolve();
    let own = site.link("lb", "b0").1.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let send = |flags: u8| {
        let frame = |port| {
            let frame = Frame::tcp(("10.1.0.99", port), (VIRTUAL4, 80), flags, b"").bytes();
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{own}{}", &hex[12..])
        };
        let frames: Vec<_> = (2_000..2_050).map(frame).collect();
        let words: Vec<_> = ["raw", "c0"].into_iter().chain(frames.iter().map(String::as_str)).collect();
        let before = site.count("lb", "limit") + site.count("lb", "balanced");
        done(&mut site.python("cl", &words));
        site.wait_for("all frames", || site.count("lb", "limit") + site.count("lb", "balanced") >= before + 50);
        site.count("lb", "limit")
    };
    site.balance(&site.config("", &[(1, "")]));
    assert_eq!(send(2), 0, "off is off");
    assert_eq!(syncookies(&site, "e1"), "1", "and the kernel's setting is its own");
    assert_eq!(site.count("e1", "cookie-sent"), 0);
    site.balance(&site.config("[shield]\nconnections = 1", &[(1, "")]));
    let limited = send(2);
    assert!(limited >= 30, "of 50 SYNs a second's one passes: {limited}");
    assert_eq!(send(0x10), limited, "what begins no connection passes");
    site.balance(&site.config("[shield]\npackets = 1", &[(1, "")]));
    let all = send(0x10);
    assert!(all >= limited + 30, "of 50 packets a second's one passes: {all}");
    site.balance(&site.config("", &[(1, "")]));
    assert_eq!(send(2), all, "off again");
}

#[test]
fn wrong_words_of_the_shield_have_sentences_and_cookies_come_and_go() {
    let Some(site) = Site::new(1) else { return };
    for (shield, words) in [
        ("packets = 0", "packets of [shield] is 0, and must be from 1 to 100000000: leave it out for no limit"),
        ("connections = 100000001", "connections of [shield] is 100000001, and must be from 1 to 100000000"),
        ("sources = 0", "sources of [shield] is 0, and must be from 1 to 4194304"),
        ("sources = 4194305", "sources of [shield] is 4194305"),
        ("packets = -1", "invalid value: integer `-1`, expected u32"),
        ("rate = 5", "unknown field `rate`"),
    ] {
        let file = site.write("wrong.toml", &site.config(&format!("[shield]\n{shield}"), &[(1, "")]));
        let said = site.refusal("lb", &["balance", "up", "--config", file.to_str().unwrap()]);
        assert!(said.contains(words), "{shield}: {said}");
    }
    let up = ["decap", "up", "--dev", "e0", "--from", SOURCE4, "--address", VIRTUAL4];
    let with = |more: &[&str]| site.run("e1", &[&up, more].concat());
    for rate in ["0", "many", "100000001"] {
        let output = with(&["--syn-cookies", rate]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("--syn-cookies"), "{said}");
    }
    done(site.inside("e1", "sysctl").args(["-qw", "net.ipv4.tcp_syncookies=0"]));
    // A failure changes nothing.
    let failed =
        site.run("e1", &["decap", "up", "--dev", "lo", "--from", SOURCE4, "--address", VIRTUAL4, "--syn-cookies", "9"]);
    assert!(!failed.status.success(), "the loopback device has no native XDP");
    assert_eq!(syncookies(&site, "e1"), "0");
    let status = || site.json("e1", &["decap", "show", "status"])["syn_cookies"].clone();
    assert!(with(&["--syn-cookies", "100"]).status.success());
    assert_eq!((syncookies(&site, "e1").as_str(), status()), ("2", 100.into()));
    assert!(with(&["--syn-cookies", "200"]).status.success());
    assert_eq!((syncookies(&site, "e1").as_str(), status()), ("2", 200.into()));
    assert!(with(&[]).status.success());
    assert_eq!((syncookies(&site, "e1").as_str(), status()), ("0", serde_json::Value::Null));
}

/// An address of a link, as `ip` writes it.
fn hex(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The clock that the programs read, which moves in steps of some milliseconds.
fn now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn the_shield_and_its_models_agree() {
    let Some(site) = Site::new(1) else { return };
    site.resolve();
    let text = site.config("[shield]\npackets = 40\nconnections = 10\nsources = 100000", &[(1, "")]);
    site.balance(&text);
    inner(&site, "lb", "shield::inside_the_balancer", "b0", &text);
    site.edge_up(1, &["--syn-cookies", "20"]);
    inner(&site, "e1", "shield::inside_the_edge", "e0", "");
    // An edge that forwards asks its own routes.
    site.json("e1", &["decap", "down"]);
    done(site.inside("e1", "sysctl").args(["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]));
    let gateway = hex(&site.link("lb", "b1").1);
    for address in ["10.2.1.1", "fd02:1::1"] {
        site.batch("e1", &format!("neigh replace {address} lladdr {gateway} dev e0 nud permanent\n"));
    }
    site.edge_up(1, &["--syn-cookies", "20"]);
    inner(&site, "e1", "shield::inside_the_edge", "e0", &gateway);
}

/// A new client, of IPv4 or IPv6: two of IPv6 in turn are of one network.
fn client(number: usize) -> (String, &'static str) {
    match number % 3 {
        0 => (format!("2001:db8:5:{:x}::1", number / 3), VIRTUAL6),
        _ => (format!("192.0.{}.{}", 2 + number / 200, 1 + number % 200), VIRTUAL4),
    }
}

#[test]
#[ignore = "the_shield_and_its_models_agree runs it in the namespace of its balancer"]
fn inside_the_balancer() {
    let config: BalanceConfig = toml::from_str(&variable(CONFIG)).unwrap();
    let mut model = Steering::new(config.compile(&mut Numbers::default()).unwrap(), config.connections as usize);
    let runner = Balancer::new(variable(PINS)).runner().unwrap();
    let port = variable(PORT).parse().unwrap();
    let (mut within, mut over, mut unclear) = (0, 0, 0);
    for number in 0..300 {
        let (source, dest) = client(number);
        for packet in 0..80_u16 {
            // Half of the network's packets come from another address of it.
            let source = if packet % 2 == 0 { source.replace("::1", "::2") } else { source.clone() };
            let flags = if packet % 3 == 0 { 2 } else { 0x10 };
            let mut frame = Frame::tcp((&source, 5_000), (dest, 80), flags, b"").bytes();
            frame[..6].copy_from_slice(&mac());
            let before = now();
            let asked = runner.explain_frame(&frame, port).unwrap().reason;
            let (action, _) = runner.run(&frame, port).unwrap();
            if now() != before {
                // The step of the clock came between: what the program has read is not known. The next source, then.
                unclear += 1;
                break;
            }
            let expected = model.steer(&frame, before, 1600).reason;
            let is_over = expected == SteerReason::Limit;
            let context = || format!("packet {packet} of {source}: {expected:?}, and {asked:?} {action}");
            assert_eq!(asked.name(), expected.name(), "{}", context());
            assert_eq!(action, if is_over { DROP } else { REDIRECT }, "{}", context());
            if is_over { over += 1 } else { within += 1 }
        }
    }
    println!("{within} within, {over} over the limit, {unclear} sources ended at a step of the clock");
    assert!(within > 100 && over > 100);
}

#[test]
#[ignore = "the_shield_and_its_models_agree runs it in the namespace of its edge"]
fn inside_the_edge() {
    let decap = Decap::new(variable(PINS));
    let port = variable(PORT).parse().unwrap();
    let gateway = Some(variable(CONFIG)).filter(|gateway| !gateway.is_empty());
    let _listeners = [VIRTUAL4, VIRTUAL6].map(|address| TcpListener::bind((address, 80)).unwrap());
    let frames: Vec<_> = (0..400_usize)
        .map(|number| {
            let (source, dest) = client(number);
            let (flags, to) = match number % 8 {
                5 => (0x10, 80),
                6 => (2, 81),
                _ => (2, 80),
            };
            let inside = Frame::tcp((&source, 5_000 + number as u16), (dest, to), flags, b"hi").bytes();
            let outer = Outer {
                encapsulation: Encapsulation::Gue,
                source: SOURCE4.parse().unwrap(),
                destination: "10.2.1.2".parse().unwrap(),
                second: None,
                port: 6080,
                hash: 1,
            };
            let mut frame = wrap(&inside, (inside.len() - 14) as u16, 0, &outer);
            frame[..6].copy_from_slice(&mac());
            frame
        })
        .collect();
    let (start, mut answered) = (now(), 0);
    let results = decap.run_frames(&frames, port).unwrap();
    // The kernel may have got what the clock allows from the first to the last, and not one more.
    let mut cookies = SynCookies::new(20);
    let mut passed = 0;
    for (number, (frame, (action, after))) in frames.iter().zip(&results).enumerate() {
        let inside = unwrap(frame, 6080).unwrap().unwrap().frame;
        let arrival = Arrival::read(&inside).unwrap();
        let wants = cookies.answers(&arrival, start);
        let listens = arrival.flow.destination_port == 80;
        match *action {
            PASS => {
                assert_eq!(after[12..], inside[12..], "frame {number}");
                passed += usize::from(listens && arrival.is_new());
            }
            TX => {
                let to = hex(&after[..6]);
                let asked = gateway.clone().unwrap_or_else(|| hex(&frame[6..12]));
                assert_eq!((to, &after[6..12]), (asked, &frame[..6]), "frame {number}");
                // A clock that goes on allows the kernel more, never less.
                assert!(wants && listens, "frame {number} {frame:02x?}");
                let (cookie, segment) = syn_cookie_of(after).unwrap();
                let least = if arrival.flow.source.is_ipv4() { 536 } else { 1220 };
                assert_eq!(segment, least, "a SYN without options");
                let expected = syn_cookie_answer(&inside, cookie, segment).unwrap();
                assert_eq!(after[12..], expected[12..], "frame {number}");
                answered += 1;
            }
            other => panic!("frame {number}: {other}"),
        }
    }
    let seconds = (now() - start).as_secs() as usize + 1;
    println!("{answered} answered, {passed} for the kernel in {seconds} s");
    assert!(answered > 0 && passed <= 20 * (seconds + 1), "{answered} {passed}");
}
