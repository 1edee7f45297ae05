//! The devices of this machine, with their addresses and default routes.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    time::Duration,
};

use futures_core::Stream;
use rtnetlink::{
    Error as NetlinkError, Handle,
    packet_route::{
        AddressFamily,
        address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope},
        link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia},
    },
};
use sallyport_links_model::{Device, DeviceKind};

/// How long the kernel may take.
const NETLINK_TIME: Duration = Duration::from_secs(5);
/// The most devices, and the most addresses of one device, that are looked at.
const MAX_DEVICES: usize = 4_096;
const MAX_ADDRESSES: usize = 64;

/// The devices of this network namespace, in the order of their numbers.
///
/// # Errors
/// The kernel does not answer.
pub async fn devices() -> io::Result<Vec<Device>> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let running = tokio::spawn(connection);
    let read = tokio::time::timeout(NETLINK_TIME, read(&handle)).await;
    running.abort();
    read.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not list its devices")))
}

async fn read(handle: &Handle) -> io::Result<Vec<Device>> {
    let mut devices = BTreeMap::new();
    each(pin!(handle.link().get().execute()), |message| {
        if devices.len() < MAX_DEVICES {
            let device = device_of(message);
            devices.insert(device.index, device);
        }
    })
    .await?;
    each(pin!(handle.address().get().execute()), |message| {
        if let Some(device) = devices.get_mut(&message.header.index)
            && device.addresses.len() < MAX_ADDRESSES
            && let Some(address) = address_of(&message)
        {
            device.addresses.push(address);
        }
    })
    .await?;
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        each(pin!(handle.route().get(request).execute()), |message| {
            for (index, gateway) in default_of(message) {
                let Some(device) = devices.get_mut(&index) else { continue };
                device.has_default_route = true;
                let known = &mut device.gateways;
                known.extend(gateway.filter(|gateway| known.len() < MAX_ADDRESSES && !known.contains(gateway)));
            }
        })
        .await?;
    }
    Ok(devices.into_values().collect())
}

/// Takes each item of a list.
async fn each<T>(
    mut list: Pin<&mut impl Stream<Item = Result<T, NetlinkError>>>,
    mut take: impl FnMut(T),
) -> io::Result<()> {
    while let Some(item) = poll_fn(|context| list.as_mut().poll_next(context)).await {
        take(item.map_err(|error| io::Error::other(error.to_string()))?);
    }
    Ok(())
}

fn device_of(message: LinkMessage) -> Device {
    let flags = message.header.flags;
    let is_loopback = flags.contains(LinkFlags::Loopback);
    let mut device = Device {
        index: message.header.index,
        name: String::new(),
        kind: if is_loopback { DeviceKind::Loopback } else { DeviceKind::Hardware },
        is_up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        is_member: false,
        has_default_route: false,
        gateways: Vec::new(),
        mtu_bytes: 0,
        addresses: Vec::new(),
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name = name,
            LinkAttribute::Mtu(mtu) => device.mtu_bytes = mtu,
            LinkAttribute::Controller(controller) => device.is_member = controller != 0,
            LinkAttribute::LinkInfo(infos) if !is_loopback => {
                if let Some(kind) = infos.iter().find_map(kind_of) {
                    device.kind = kind;
                }
            }
            _ => {}
        }
    }
    device
}

/// The kind of a device that says what it is; devices of hardware mostly do not.
fn kind_of(info: &LinkInfo) -> Option<DeviceKind> {
    let LinkInfo::Kind(kind) = info else { return None };
    Some(match kind {
        // Modems, and networks other than Ethernet.
        InfoKind::Wwan | InfoKind::RmNet | InfoKind::Ipoib | InfoKind::Dsa => DeviceKind::Hardware,
        InfoKind::Tun
        | InfoKind::Wireguard
        | InfoKind::IpIp
        | InfoKind::Ip6Tnl
        | InfoKind::SitTun
        | InfoKind::GreTun
        | InfoKind::GreTun6
        | InfoKind::GreTap
        | InfoKind::GreTap6
        | InfoKind::ErSpan
        | InfoKind::Ip6ErSpan
        | InfoKind::Vti
        | InfoKind::Vti6
        | InfoKind::Xfrm
        | InfoKind::Vxlan
        | InfoKind::Geneve
        | InfoKind::BareUdp
        | InfoKind::Gtp => DeviceKind::Tunnel,
        _ => DeviceKind::Virtual,
    })
}

/// The address, if packets may leave from it to other machines.
fn address_of(message: &AddressMessage) -> Option<IpAddr> {
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed | AddressHeaderFlags::Deprecated;
    if message.header.flags.intersects(unusable) {
        return None;
    }
    // An address of the link reaches nothing behind its router. Those of the loopback device are of the host.
    if message.header.scope == AddressScope::Link || message.header.scope == AddressScope::Nowhere {
        return None;
    }
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            _ => {}
        }
    }
    // On a link of two ends, the other attribute is the far end.
    local.or(address)
}

/// The devices by which a default route of the main table leaves, with the next hop of each.
fn default_of(message: RouteMessage) -> Vec<(u32, Option<IpAddr>)> {
    let header = &message.header;
    let is_default = header.destination_prefix_length == 0
        && header.table == RouteHeader::RT_TABLE_MAIN
        && header.kind == RouteType::Unicast;
    if !is_default {
        return Vec::new();
    }
    let gateway_of = |attributes: &[RouteAttribute]| attributes.iter().find_map(gateway);
    let mut ways = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => ways.push((*index, gateway_of(&message.attributes))),
            RouteAttribute::MultiPath(hops) => {
                ways.extend(hops.iter().map(|hop| (hop.interface_index, gateway_of(&hop.attributes))));
            }
            _ => {}
        }
    }
    ways
}

/// The next hop that an attribute names. The next hop of an IPv4 route may have an IPv6 address (RFC 8950).
fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(four)) => Some((*four).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(six)) => Some((*six).into()),
        RouteAttribute::Via(via) => match via {
            RouteVia::Inet(four) => Some((*four).into()),
            RouteVia::Inet6(six) => Some((*six).into()),
            _ => None,
        },
        _ => None,
    }
}
