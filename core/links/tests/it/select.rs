//! Which links are there.

use sallyport_links_model::{Device, DeviceKind, Link, LinkChoice, Unused, segment_bytes, select, unused};

fn device(index: u32, name: &str, kind: DeviceKind) -> Device {
    let addresses = vec![format!("10.0.{index}.2").parse().unwrap(), format!("fd00:{index}::2").parse().unwrap()];
    Device {
        index,
        name: name.to_owned(),
        kind,
        is_up: true,
        is_member: false,
        has_default_route: false,
        gateways: Vec::new(),
        mtu_bytes: 1_500,
        addresses,
    }
}

fn names(choice: &[&str], devices: &[Device]) -> Vec<String> {
    let links = select(&LinkChoice::parse(choice).unwrap(), devices, &[]).unwrap();
    links.into_iter().map(|link: Link| link.name).collect()
}

#[test]
fn auto_takes_what_reaches_other_networks() {
    let veth = Device { has_default_route: true, ..device(3, "veth0", DeviceKind::Virtual) };
    let devices = [
        device(1, "lo", DeviceKind::Loopback),
        device(2, "eth0", DeviceKind::Hardware),
        veth,
        device(4, "docker0", DeviceKind::Virtual),
        Device { has_default_route: true, ..device(5, "wg0", DeviceKind::Tunnel) },
        Device { is_up: false, ..device(6, "eth1", DeviceKind::Hardware) },
        Device { is_member: true, ..device(7, "eth2", DeviceKind::Hardware) },
        Device { addresses: Vec::new(), ..device(8, "eth3", DeviceKind::Hardware) },
    ];
    assert_eq!(names(&["auto"], &devices), ["eth0", "veth0"]);
    let reasons: Vec<_> = devices.iter().map(|device| unused(device, &[])).collect();
    let expected = [
        Some(Unused::Loopback),
        None,
        None,
        Some(Unused::NoDefaultRoute),
        Some(Unused::Tunnel),
        Some(Unused::Down),
        Some(Unused::Member),
        Some(Unused::NoAddress),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(names(&["wg0", "lo", "eth1", "nowhere", "docker0"], &devices), ["wg0", "lo", "docker0"]);
}

#[test]
fn a_named_address_is_the_only_source() {
    let devices = [device(2, "eth0", DeviceKind::Hardware)];
    let links = select(&LinkChoice::parse(&["10.0.2.2", "eth0"]).unwrap(), &devices, &[]).unwrap();
    assert_eq!(links[0].name, "10.0.2.2");
    assert_eq!(links[0].device, "eth0");
    assert_eq!(links[0].source_for("192.0.2.1".parse().unwrap()), Some("10.0.2.2".parse().unwrap()));
    assert_eq!(links[0].source_for("2001:db8::1".parse().unwrap()), None);
    assert_eq!(links[1].source_for("2001:db8::1".parse().unwrap()), Some("fd00:2::2".parse().unwrap()));
}

#[test]
fn our_own_tunnel_is_no_link_of_itself() {
    let own = ["sally0".to_owned()];
    let tun = Device { has_default_route: true, ..device(9, "sally0", DeviceKind::Virtual) };
    let devices = [device(2, "eth0", DeviceKind::Hardware), tun];
    for named in ["sally0", "10.0.9.2"] {
        let error = select(&LinkChoice::parse(&["eth0", named]).unwrap(), &devices, &own).unwrap_err();
        let expected =
            format!("the link {named} is the device sally0 of our own tunnel: the tunnel would carry itself");
        assert_eq!(error.to_string(), expected);
    }
    let links = select(&LinkChoice::Auto, &devices, &own).unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!(links[0].name, "eth0");
    assert_eq!(unused(&devices[1], &own), Some(Unused::OwnTunnel));
}

#[test]
fn headers_take_their_part_of_every_packet() {
    let (four, six) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    assert_eq!((segment_bytes(1_500, four), segment_bytes(1_500, six)), (1_448, 1_428));
    assert_eq!(segment_bytes(1_500, "::ffff:192.0.2.1".parse().unwrap()), 1_448);
    assert_eq!((segment_bytes(9_001, four), segment_bytes(40, six)), (8_949, 0));
}
