//! Devices, neighbours and addresses, as lists.

use std::{fmt, net::IpAddr, pin::Pin, time::Duration};

use futures_util::{Stream, TryStreamExt as _};
use rtnetlink::{
    Error, Handle,
    packet_route::{
        address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
        link::{InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, VlanProtocol},
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourMessage, NeighbourState},
    },
};
use tokio::time::timeout;

use crate::XdpError;

/// How long the kernel may take for a list.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most entries that are read of a list.
const MAX_ENTRIES: usize = 4_000_000;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its address.
    pub mac: [u8; 6],
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// For a VLAN: the index of the port below, and the number.
    pub vlan: Option<(u32, u16)>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbor {
    /// Its address of IP.
    pub address: IpAddr,
    /// Its device.
    pub device: u32,
    /// Its address of the link, if it is known.
    pub mac: Option<[u8; 6]>,
    /// The state, as `ip neigh` names it.
    pub state: &'static str,
    /// Whether the kernel probes it without packets that go there.
    pub is_managed: bool,
}

/// The lists.
#[derive(Debug)]
pub struct Kernel {
    handle: Handle,
}

impl Kernel {
    /// Speaks with the kernel, within a runtime.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub fn open() -> Result<Self, XdpError> {
        let opened = rtnetlink::new_connection().map_err(failed("devices"))?;
        let (connection, handle, _) = opened;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// All devices.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub async fn devices(&self) -> Result<Vec<Device>, XdpError> {
        let messages = all("devices", Box::pin(self.handle.link().get().execute())).await?;
        Ok(messages.into_iter().filter_map(device_of).collect())
    }

    /// The neighbours.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub async fn neighbors(&self) -> Result<Vec<Neighbor>, XdpError> {
        let messages = all("neighbours", Box::pin(self.handle.neighbours().get().execute())).await?;
        Ok(messages.into_iter().filter_map(neighbor_of).collect())
    }
}

impl Kernel {
    /// All addresses of this machine, with the indexes of their devices.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub async fn addresses(&self) -> Result<Vec<(u32, IpAddr)>, XdpError> {
        let messages = all("addresses", Box::pin(self.handle.address().get().execute())).await?;
        let address = |message: AddressMessage| {
            let found = message.attributes.into_iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(address) => Some((2, address)),
                AddressAttribute::Address(address) => Some((1, address)),
                _ => None,
            });
            found.map(|(_, address)| (message.header.index, address))
        };
        Ok(messages.into_iter().filter_map(address).collect())
    }

    /// Puts an address on a device, for this machine alone.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub async fn add_address(&self, device: u32, address: IpAddr) -> Result<(), XdpError> {
        let mut request = self.handle.address().add(device, address, if address.is_ipv4() { 32 } else { 128 });
        // Other edges have the same address, and nobody is to be asked.
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        request.execute().await.map_err(failed("addresses"))
    }

    /// Removes an address from a device.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub async fn remove_address(&self, device: u32, address: IpAddr) -> Result<(), XdpError> {
        let messages = all("addresses", Box::pin(self.handle.address().get().execute())).await?;
        for message in messages.into_iter().filter(|message| message.header.index == device) {
            let is_it = message.attributes.iter().any(|attribute| match attribute {
                AddressAttribute::Local(found) | AddressAttribute::Address(found) => *found == address,
                _ => false,
            });
            if is_it {
                self.handle.address().del(message).execute().await.map_err(failed("addresses"))?;
            }
        }
        Ok(())
    }
}

/// Whether a device forwards IPv4, and IPv6, as `sysctl` says.
#[must_use]
pub fn forwards(device: &str) -> (bool, bool) {
    let is_on = |family: &str| {
        let file = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
        std::fs::read_to_string(file).is_ok_and(|value| value.trim() != "0")
    };
    (is_on("ipv4"), is_on("ipv6"))
}

/// Says which list failed.
fn failed<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> XdpError {
    move |error| XdpError::Netlink { what, reason: error.to_string() }
}

/// Reads a list to its end.
async fn all<T>(
    what: &'static str,
    stream: Pin<Box<dyn Stream<Item = Result<T, Error>> + '_>>,
) -> Result<Vec<T>, XdpError> {
    let read = async {
        let mut stream = stream;
        let mut entries = Vec::new();
        while let Some(entry) = stream.try_next().await.map_err(failed(what))? {
            if entries.len() == MAX_ENTRIES {
                return Err(failed(what)(format!("it has more than {MAX_ENTRIES} entries")));
            }
            entries.push(entry);
        }
        Ok(entries)
    };
    let late = |_| failed(what)(format!("it has not answered within {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, read).await.map_err(late)?
}

pub(super) fn device_of(message: LinkMessage) -> Option<Device> {
    let mut device = Device {
        index: message.header.index,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        vlan: None,
    };
    let (mut below, mut vid, mut is_elsewhere) = (None, None, false);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name = name,
            // The index of the device below is that of another network namespace.
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::Address(bytes) => device.mac = bytes.try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => device.mtu = mtu,
            LinkAttribute::Link(index) => below = Some(index),
            LinkAttribute::LinkInfo(infos) => vid = infos.into_iter().find_map(vid_of),
            _ => {}
        }
    }
    device.vlan = below.zip(vid).filter(|_| !is_elsewhere);
    Some(device)
}

/// The number of a VLAN of 802.1Q; those of 802.1ad are the kernel's.
fn vid_of(info: LinkInfo) -> Option<u16> {
    let LinkInfo::Data(InfoData::Vlan(attributes)) = info else { return None };
    let is_service = attributes.contains(&InfoVlan::Protocol(VlanProtocol::Ieee8021Ad));
    attributes.into_iter().find_map(|attribute| match attribute {
        InfoVlan::Id(vid) if !is_service => Some(vid),
        _ => None,
    })
}

pub(super) fn neighbor_of(message: NeighbourMessage) -> Option<Neighbor> {
    let state = match message.header.state {
        NeighbourState::Incomplete => "incomplete",
        NeighbourState::Reachable => "reachable",
        NeighbourState::Stale => "stale",
        NeighbourState::Delay => "delay",
        NeighbourState::Probe => "probe",
        NeighbourState::Failed => "failed",
        NeighbourState::Permanent => "permanent",
        // No neighbours: multicast addresses, and those of devices without addresses.
        _ => return None,
    };
    let (mut address, mut mac, mut is_managed) = (None, None, false);
    for attribute in message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => address = Some(found.into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => address = Some(found.into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok(),
            NeighbourAttribute::ExtFlags(flags) => is_managed = flags.contains(NeighbourExtFlags::Managed),
            _ => {}
        }
    }
    Some(Neighbor { address: address?, device: message.header.ifindex, mac, state, is_managed })
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_core::{Emitable as _, Parseable as _};
    use rtnetlink::packet_route::link::InfoKind;

    use super::*;

    /// A device as the kernel's message on the wire tells it.
    fn told(attributes: Vec<LinkAttribute>) -> Device {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.attributes = vec![LinkAttribute::IfName("eth1.100".to_owned()), LinkAttribute::Address(vec![2; 6])];
        message.attributes.extend(attributes);
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        device_of(LinkMessage::parse(&bytes[..]).unwrap()).unwrap()
    }

    fn vlan(protocol: VlanProtocol) -> LinkAttribute {
        let data = vec![InfoVlan::Protocol(protocol), InfoVlan::Id(100)];
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(InfoData::Vlan(data))])
    }

    #[test]
    fn a_vlan_is_known_by_netlink_with_the_port_below() {
        let device = told(vec![LinkAttribute::Link(3), vlan(VlanProtocol::Ieee8021Q)]);
        let wanted = (7, "eth1.100", [2; 6], Some((3, 100)));
        assert_eq!((device.index, device.name.as_str(), device.mac, device.vlan), wanted);
        assert_eq!(told(vec![LinkAttribute::Link(3)]).vlan, None, "the other end of a veth pair");
        assert_eq!(told(vec![LinkAttribute::Link(3), vlan(VlanProtocol::Ieee8021Ad)]).vlan, None, "a service tag");
        let elsewhere = vec![LinkAttribute::Link(3), LinkAttribute::LinkNetNsId(1), vlan(VlanProtocol::Ieee8021Q)];
        assert_eq!(told(elsewhere).vlan, None, "the port is in another network namespace");
    }
}
