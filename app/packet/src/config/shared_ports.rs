//! Ports that the NAT and the sockets of this machine both have.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, UdpSocket},
    ops::RangeInclusive,
};

use sallyport_packet_model::nat::NatConfig;

/// The most ports that are named.
const MAX_NAMED: usize = 8;

/// The sentence about an address of the pool that this machine has too, if its sockets can have ports of the NAT.
pub(crate) fn sentence(config: &NatConfig) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    let address = config.pool.iter().find(|address| is_own(**address))?;
    let chosen = chosen(&read("sys/net/ipv4/ip_local_port_range"), &read("sys/net/ipv4/ip_local_reserved_ports"));
    let lists = ["net/tcp", "net/tcp6", "net/udp", "net/udp6"];
    let open: BTreeSet<u16> = lists.iter().flat_map(|list| open_ports(&read(list), list.contains("tcp"))).collect();
    said(*address, &config.ports, chosen.as_ref(), &open)
}

fn said(
    address: Ipv4Addr,
    nat: &RangeInclusive<u16>,
    chosen: Option<&RangeInclusive<u16>>,
    open: &BTreeSet<u16>,
) -> Option<String> {
    let open: Vec<_> = open.iter().filter(|port| nat.contains(port)).collect();
    let chosen = chosen.filter(|chosen| chosen.start() <= nat.end() && nat.start() <= chosen.end());
    let (chosen, open) = match (chosen, open.is_empty()) {
        (None, true) => return None,
        (chosen, _) => {
            let named = open.iter().take(MAX_NAMED).map(|port| port.to_string()).collect::<Vec<_>>().join(", ");
            let more = if open.len() > MAX_NAMED { " and others" } else { "" };
            (chosen, (!open.is_empty()).then(|| format!("open at {named}{more}")))
        }
    };
    let chosen = chosen.map(|chosen| format!("chosen from {}-{}", chosen.start(), chosen.end()));
    let both = [chosen, open].into_iter().flatten().collect::<Vec<_>>().join(", and ");
    Some(format!(
        "{address} is an address of this machine too, and its sockets have ports of the NAT ({both}): give `ports` of [nat] \
         another range, or move them by net.ipv4.ip_local_port_range"
    ))
}

/// Whether this machine has the address: a socket can be bound to it.
fn is_own(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The ports that the kernel chooses for sockets; none if all of them are reserved.
fn chosen(range: &str, reserved: &str) -> Option<RangeInclusive<u16>> {
    let mut words = range.split_whitespace().map(|word| word.parse::<u16>().ok());
    let (first, last) = (words.next()??, words.next()??);
    let reserved: Vec<_> = reserved
        .trim()
        .split(',')
        .filter_map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .collect::<Vec<RangeInclusive<u16>>>();
    let is_free = |port: &u16| !reserved.iter().any(|range| range.contains(port));
    Some((first..=last).find(is_free)?..=(first..=last).rev().find(is_free)?)
}

/// The ports of a list of /proc/net that sockets wait at.
fn open_ports(list: &str, is_tcp: bool) -> Vec<u16> {
    let port = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        // 0A is a socket of TCP that listens, and 07 one of UDP that has no peer.
        (*words.get(3)? == if is_tcp { "0A" } else { "07" }).then_some(port)
    };
    list.lines().skip(1).filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_ports_have_one_sentence() {
        let address = Ipv4Addr::new(203, 0, 113, 10);
        let one = |range, reserved, ports: &[u16]| {
            said(address, &(20_000..=40_000), chosen(range, reserved).as_ref(), &ports.iter().copied().collect())
        };
        assert_eq!(one("40001\t60999\n", "", &[80, 50_000]), None);
        let both = one("32768\t60999\n", "32768-33000,33002\n", &[22, 30_000]).unwrap();
        assert!(both.contains("(chosen from 33001-60999, and open at 30000)"), "{both}");
        assert_eq!(one("32768 40000", "32768-40000", &[]), None, "all are reserved");
        let list = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:1F91 0:0 01 0\n";
        assert_eq!(open_ports(list, true), [8080]);
    }
}
