//! What the fuzzer does with the payload of PACKETS: whatever it is, only a machine's own packets go on, to others.

use std::time::Instant;

use sallyport_model::{AccountId, CredentialHash, MachineId, NetworkId};
use sallyport_network::{
    relay::{DropReason, MTU_BYTES, Relay, Verdict},
    route::{MachineRoute, NetworkRoute},
};
use sallyport_packet_model::parse::parse_ip;
use sallyport_wire::{frame::VIRTIO_HEADER_BYTES, packets::Parcels};

/// A policy that allows some flows.
pub(crate) const POLICY: &str = r#"
network = "office"
[[allow]]
name = "web"
to = ["b"]
services = ["tcp/443", "udp/53", "icmp"]
[[deny]]
name = "no-telnet"
services = ["tcp/23"]
"#;

pub(crate) fn machine(number: u8) -> MachineId {
    MachineId::from_random([number; 16])
}

/// Three machines: b has a route, c is the exit.
pub(crate) fn office(policy: Option<&str>) -> NetworkRoute {
    let one = |number: u8, name: &str, routes: &[&str]| MachineRoute {
        id: machine(number),
        name: name.parse().unwrap(),
        credential: CredentialHash([number; 32]),
        addresses: vec![format!("10.20.0.{number}").parse().unwrap(), format!("fd00:20::{number}").parse().unwrap()],
        routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
        groups: Vec::new(),
        is_exit: name == "c",
    };
    NetworkRoute {
        id: NetworkId::from_random([1; 16]),
        account: AccountId::from_random([2; 16]),
        name: "office".parse().unwrap(),
        ranges: vec!["10.20.0.0/24".parse().unwrap(), "fd00:20::/64".parse().unwrap()],
        policy: policy.map(str::to_owned),
        machines: vec![one(1, "a", &[]), one(2, "b", &["10.30.0.0/16", "fd00:30::/48"]), one(3, "c", &[])],
    }
}

/// The first byte is the machine and whether there is a policy; the rest is the payload of PACKETS.
pub(crate) fn network_packet(data: &[u8]) {
    let Some((first, payload)) = data.split_first() else { return };
    let now = Instant::now();
    let from = machine(first % 4 + 1);
    let route = office((first & 0x80 != 0).then_some(POLICY));
    let mut relay = Relay::new(&route, now);
    for parcel in Parcels::of(payload).map_while(Result::ok) {
        let packet = &parcel[VIRTIO_HEADER_BYTES..];
        match relay.judge(from, parcel, now) {
            Verdict::Forward(to) => {
                let (ip, _) = parse_ip(packet).unwrap();
                assert_ne!(to, from);
                assert!(!ip.destination.is_multicast());
                let own = route.machines.iter().find(|one| one.id == from).unwrap();
                let is_own = own.endpoint().networks.iter().any(|net| net.contains(&ip.source));
                assert!(is_own || own.is_exit, "{ip:?}");
                assert!(packet.len() <= usize::from(MTU_BYTES) || parcel[1] != 0, "{} bytes", packet.len());
            }
            Verdict::Drop(reason) => assert!(!DropReason::WORDS[reason.place()].is_empty()),
        }
    }
}
