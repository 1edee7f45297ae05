//! Backends and slices of ports.

use sallyport_balance::{HashKey, Weight};
use sallyport_packet_model::{
    balance::{Backend, BackendError, Backends, PortSlices, SliceError, steering_port},
    layout::{BACKEND_CELLS, SLICES},
    parse::{Flow, flow_hash, parse},
};

use crate::frames::Frame;

fn backends(hosts: &[(u8, u16)]) -> Vec<Backend> {
    let backend = |(host, weight): &(u8, u16)| Backend {
        address: [192, 0, 2, *host].into(),
        weight: Weight::new(*weight).unwrap(),
    };
    hosts.iter().map(backend).collect()
}

fn table(hosts: &[(u8, u16)]) -> Backends {
    Backends::new(&HashKey::new([7; 16]), 3, &backends(hosts)).unwrap()
}

fn flows() -> impl Iterator<Item = Flow> {
    (1..=4_000).map(|port| Flow {
        source: [198, 51, 100, 1].into(),
        destination: [203, 0, 113, 1].into(),
        protocol: 6,
        source_port: port,
        destination_port: 443,
    })
}

fn owners(table: &Backends) -> Vec<u8> {
    let last = |address| match address {
        std::net::IpAddr::V4(address) => address.octets()[3],
        std::net::IpAddr::V6(_) => panic!("no IPv6 here"),
    };
    flows().map(|flow| last(table.backend(&flow).unwrap().address)).collect()
}

#[test]
fn backends_share_flows_by_weight_and_keep_them() {
    let before = owners(&table(&[(1, 1), (2, 1), (3, 2)]));
    let count = |owners: &[u8], host| owners.iter().filter(|owner| **owner == host).count();
    for (host, wanted) in [(1, 1_000), (2, 1_000), (3, 2_000)] {
        assert!(count(&before, host).abs_diff(wanted) < 200, "{host}: {}", count(&before, host));
    }
    let after = owners(&table(&[(3, 2), (1, 1)]));
    assert_eq!(count(&after, 2), 0);
    let moved = before.iter().zip(&after).filter(|(before, after)| **before != 2 && before != after).count();
    assert!(moved < 150, "{moved} of 3,000 flows of the others have moved");
    assert_eq!(owners(&table(&[(2, 1), (3, 2), (1, 1)])), before, "the order does not matter");
}

#[test]
fn the_cells_say_what_the_table_says() {
    let table = table(&[(1, 1), (2, 0), (3, 2)]);
    let cells = table.cells();
    assert_eq!(cells.len(), 1 + cells[0] as usize);
    assert!(cells.len() <= BACKEND_CELLS);
    assert!(cells[1..].iter().all(|cell| [1, 3].contains(cell)), "no slot of a backend without weight");
    for flow in flows().take(100) {
        let cell = cells[1 + (flow_hash(&flow, 3) % cells[0]) as usize];
        let host = table.backend(&flow).unwrap().address;
        assert_eq!(host, backends(&[(1, 1), (2, 0), (3, 2)])[cell as usize - 1].address);
    }
}

#[test]
fn wrong_and_empty_tables() {
    let key = HashKey::new([7; 16]);
    let twice = Backends::new(&key, 0, &backends(&[(1, 1), (1, 2)]));
    assert_eq!(twice.err(), Some(BackendError::Twice([192, 0, 2, 1].into())));
    let many: Vec<Backend> = (0..1_025u32)
        .map(|host| Backend { address: std::net::Ipv4Addr::from_bits(host).into(), weight: Weight::new(1).unwrap() })
        .collect();
    assert_eq!(Backends::new(&key, 0, &many).err(), Some(BackendError::TooMany(1_025)));
    assert_eq!(table(&[]).backend(&flows().next().unwrap()), None);
    assert_eq!(table(&[(1, 0)]).backend(&flows().next().unwrap()), None);
}

#[test]
fn slices_have_one_owner_each() {
    let mut slices = PortSlices::default();
    assert_eq!(slices.take(0), Ok(1));
    assert_eq!(slices.take(0), Ok(2));
    assert_eq!(slices.take(1), Ok(3));
    assert_eq!(PortSlices::ports(1), Some(2_048..=4_095));
    assert_eq!(PortSlices::ports(31), Some(63_488..=65_535));
    assert_eq!(PortSlices::ports(32), None);
    for (port, owner) in
        [(80, None), (2_047, None), (2_048, Some(0)), (6_143, Some(0)), (6_144, Some(1)), (8_192, None)]
    {
        assert_eq!(slices.owner(port), owner, "{port}");
    }
    assert_eq!(slices.take_slice(1, 0), Err(SliceError::NotFree(0)), "services have the first slice");
    assert_eq!(slices.take_slice(1, 2), Err(SliceError::NotFree(2)));
    assert_eq!(slices.take_slice(1, 3), Ok(()), "its own");
    assert_eq!(slices.take_slice(1, 32), Err(SliceError::NotFree(32)));
    assert_eq!(slices.take(u32::MAX), Err(SliceError::BadServer));
    let more = std::iter::repeat_with(|| slices.take(9)).take_while(Result::is_ok).count();
    assert_eq!(more, SLICES - 4);
    assert_eq!(slices.take(9), Err(SliceError::NoneFree));
    assert_eq!(slices.release(0), 2);
    assert_eq!(slices.owner(2_048), None);
    assert_eq!(slices.take(5), Ok(1));
}

#[test]
fn packets_are_steered_by_the_port_that_a_server_chose() {
    let mut slices = PortSlices::default();
    slices.take_slice(4, 2).unwrap();
    let port = |frame: Frame| steering_port(&parse(&frame.bytes()).unwrap());
    let (server, shared) = (("198.51.100.7", 53), ("203.0.113.1", 5_000));
    let answer = Frame::udp(server, shared, b"answer");
    assert_eq!(slices.server(&parse(&answer.bytes()).unwrap()), Some(4));
    assert_eq!(port(Frame::tcp(server, shared, 2, b"")), Some(5_000));
    assert_eq!(port(Frame::echo(server.0, shared.0, true, 5_000)), Some(5_000));
    assert_eq!(port(Frame::echo(server.0, shared.0, false, 5_000)), None, "the address itself is asked");
    let sent = Frame::udp(shared, server, b"question");
    assert_eq!(port(Frame::error("192.0.2.9", shared.0, 11, &sent.packet())), Some(5_000));
    assert_eq!(port(Frame { fragment: 0x2000, ..answer }), None);
    assert_eq!(port(Frame::new(server.0, shared.0, 47, vec![0; 9])), None);
}
