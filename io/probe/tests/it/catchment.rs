//! Pings from an anycast address: every network is at the site to which routing leads its replies.

use std::{
    fmt::Write as _,
    fs::File,
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use nix::sched::{CloneFlags, setns};
use parking_lot::Mutex;
use sallyport_probe::{CatchSocket, Catcher, CaughtCounts, Family, Key, ProbeError};
use socket2::{Domain, Protocol, Socket, Type};

use crate::networks::{Process, Sockets, must, run_within, wait_until};

const SITES: usize = 3;
const NETWORKS: usize = 10_000;
const RATE: u32 = 5_000;
const IDENTIFIER: u16 = 0x5a5a;
const ANYCAST: &str = "198.51.100.1";
/// How long replies may be on their way.
const PATIENCE: Duration = Duration::from_secs(20);

/// The address in the network with this number.
fn target(number: usize) -> IpAddr {
    Ipv4Addr::from_bits((20 << 24) | (u32::try_from(number).unwrap() << 8) | 1).into()
}

/// The site to which routing leads the network: at random, and the same in every run.
fn planted(number: usize) -> usize {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from((mixed >> 33) % SITES as u64).unwrap()
}

/// A network of a site, connected to this one.
fn site_network(site: usize, groups: &str) -> Process {
    let holder = Process(Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap());
    let pid = holder.0.id();
    let theirs = || std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let ours = std::fs::read_link("/proc/self/ns/net").ok();
    wait_until("the other namespace", || theirs().filter(|theirs| Some(theirs) != ours.as_ref()));
    must(&format!("ip link add r{site} type veth peer name s{site} netns {pid}"));
    must(&format!("ip addr add 10.90.{site}.2/30 dev r{site}; ip link set r{site} up"));
    let inside = format!(
        "ip link set lo up; ip addr add {ANYCAST}/32 dev lo; ip addr add 10.90.{site}.1/30 dev s{site}; \
         ip link set s{site} up; ip route add default via 10.90.{site}.2; \
         echo \"{groups}\" >/proc/sys/net/ipv4/ping_group_range"
    );
    must(&format!("nsenter --net=/proc/{pid}/ns/net sh -c '{inside}'"));
    must(&format!("ip route add {ANYCAST}/32 via 10.90.{site}.1 table {}", 101 + site));
    must(&format!("ip rule add fwmark {} table {}", site + 1, 101 + site));
    holder
}

/// All networks answer here, and routing leads each reply to its site.
fn plant() {
    must("ip route add local 20.0.0.0/8 dev lo");
    must(&format!("ip route add {ANYCAST}/32 via 10.90.0.1"));
    let mut elements = String::new();
    for number in 0..NETWORKS {
        let network = Ipv4Addr::from_bits((20 << 24) | (u32::try_from(number).unwrap() << 8));
        write!(elements, "{network}/24 : {}, ", planted(number) + 1).unwrap();
    }
    let rules = format!(
        "table ip planted {{
             map site {{ type ipv4_addr : mark; flags interval; elements = {{ {elements} }}; }}
             chain out {{
                 type route hook output priority mangle;
                 ip daddr {ANYCAST} meta mark set ip saddr map @site;
             }}
         }}\n"
    );
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(nft.stdin.as_mut().unwrap(), rules.as_bytes()).unwrap();
    drop(nft.stdin.take());
    assert!(nft.wait().unwrap().success());
}

/// What a site does in its network, until every network has replied to one. Returns its catcher.
fn run_site(site: usize, network: &File, turns: &[Barrier; 2], counted: &[AtomicU64; SITES]) -> Catcher {
    setns(network, CloneFlags::CLONE_NEWNET).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut catcher = Catcher::new(Family::V4, IDENTIFIER, Key::new([9; 16]));
    assert!((0..NETWORKS).all(|number| catcher.add(target(number))));
    let catcher = Arc::new(Mutex::new(catcher));
    runtime.block_on(async {
        let socket = CatchSocket::open(ANYCAST.parse().unwrap(), IDENTIFIER).unwrap();
        turns[0].wait();
        let mut unsent = 0;
        let sending = async {
            if site == 0 {
                socket.send_all(&catcher, RATE, |_| true, |_, is_sent| unsent += usize::from(!is_sent)).await;
            }
            // Until all replies are there, at whichever sites.
            while counted.iter().map(|site| site.load(Ordering::Relaxed)).sum::<u64>() < NETWORKS as u64 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                counted[site].store(catcher.lock().counts().counted, Ordering::Relaxed);
            }
        };
        let waited = async { tokio::time::timeout(PATIENCE, sending).await.expect("replies") };
        tokio::select! {
            () = socket.receive(&catcher) => panic!("the socket is gone"),
            () = waited => {}
        }
        assert_eq!(unsent, 0);
    });
    drop(runtime);
    turns[1].wait();
    Arc::into_inner(catcher).unwrap().into_inner()
}

#[test]
fn ten_thousand_networks_are_where_routing_leads_them() {
    run_within(Sockets::Ping, &[], "catchment::within_planted_networks");
}

#[test]
#[ignore = "runs within the network of ten_thousand_networks_are_where_routing_leads_them"]
fn within_planted_networks() {
    // One of the sites has raw sockets alone.
    let groups = ["0 2147483647", "1 0", "0 2147483647"];
    let sites: Vec<Process> = (0..SITES).map(|site| site_network(site, groups[site])).collect();
    plant();
    let turns = Arc::new([Barrier::new(SITES), Barrier::new(SITES)]);
    let counted: Arc<[AtomicU64; SITES]> = Arc::default();
    let running: Vec<_> = sites
        .iter()
        .enumerate()
        .map(|(site, holder)| {
            let network = File::open(format!("/proc/{}/ns/net", holder.0.id())).unwrap();
            let (turns, counted) = (turns.clone(), counted.clone());
            thread::spawn(move || run_site(site, &network, &turns, &counted))
        })
        .collect();
    let catchers: Vec<Catcher> = running.into_iter().map(|site| site.join().unwrap()).collect();
    for number in 0..NETWORKS {
        let landed: Vec<_> = (0..SITES).filter(|site| catchers[*site].has_replied(number)).collect();
        assert_eq!(landed, [planted(number)], "{}", target(number));
    }
    for catcher in &catchers {
        let CaughtCounts { counted, duplicates, forged } = catcher.counts();
        assert!(counted > NETWORKS as u64 / 5 && (duplicates, forged) == (0, 0), "{:?}", catcher.counts());
    }
}

#[test]
fn forged_replies_count_nowhere() {
    for sockets in [Sockets::Ping, Sockets::Raw] {
        run_within(sockets, &[], "catchment::within_a_network_of_forgers");
    }
}

#[test]
#[ignore = "runs within the networks of forged_replies_count_nowhere"]
fn within_a_network_of_forgers() {
    must(&format!("ip addr add {ANYCAST}/32 dev lo; ip route add local 20.0.0.0/8 dev lo"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let elsewhere = CatchSocket::open("192.0.2.1".parse().unwrap(), 7).unwrap_err();
        assert!(matches!(elsewhere, ProbeError::NotHere(_)), "{elsewhere}");
        let new = |key| {
            let mut catcher = Catcher::new(Family::V4, IDENTIFIER, Key::new([key; 16]));
            assert!((0..4).all(|number| catcher.add(target(number))));
            catcher
        };
        let (catcher, stranger) = (Mutex::new(new(1)), new(2));
        let socket = CatchSocket::open(ANYCAST.parse().unwrap(), IDENTIFIER).unwrap();
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        let to = std::net::SocketAddr::new(ANYCAST.parse().unwrap(), 0).into();
        let as_reply = |(_, request): (IpAddr, Vec<u8>)| {
            let sequence = u16::from_be_bytes([request[6], request[7]]);
            sallyport_ping::reply(Family::V4, IDENTIFIER, sequence, &request[sallyport_ping::HEADER_BYTES..])
        };
        let send_from = |number: usize, message: &[u8]| {
            // A socket of its own for each address.
            let from = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
            from.bind(&std::net::SocketAddr::new(target(number), 0).into()).unwrap();
            from.send_to(message, &to).unwrap();
        };
        // The right reply to another key, the reply of another target, a stranger's, and noise.
        send_from(0, &as_reply(stranger.request(0).unwrap()));
        let right = as_reply(catcher.lock().request(1).unwrap());
        send_from(2, &right);
        raw.send_to(&right, &to).unwrap();
        send_from(3, &sallyport_ping::reply(Family::V4, IDENTIFIER, 3, b"short"));
        // The right one twice.
        send_from(1, &right);
        send_from(1, &right);
        let all = async {
            while catcher.lock().counts() != (CaughtCounts { counted: 1, duplicates: 1, forged: 4 }) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = socket.receive(&catcher) => panic!("the socket is gone"),
            waited = tokio::time::timeout(PATIENCE, all) => {
                assert!(waited.is_ok(), "{:?}", catcher.lock().counts());
            }
        }
        let landed: Vec<_> = (0..4).filter(|number| catcher.lock().has_replied(*number)).collect();
        assert_eq!(landed, [1]);
    });
}
