//! From the wanted links and the machine's devices to the links that are there.

use std::net::IpAddr;

use crate::{Device, DeviceKind, LinkChoice, LinkSpec, MAX_LINKS, Properties, Selector};

/// A link that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The name: the device or the address, as the user named it.
    pub name: String,
    /// The kernel's number of the device. A device that comes back has another number.
    pub index: u32,
    /// The device.
    pub device: String,
    /// The source addresses: one if the user named an address.
    pub addresses: Vec<IpAddr>,
    /// The MTU in bytes.
    pub mtu_bytes: u32,
    /// How the link may be used.
    pub properties: Properties,
}

impl Link {
    /// A source address of the family of a destination.
    #[must_use]
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let is_v4 = destination.to_canonical().is_ipv4();
        self.addresses.iter().copied().find(|address| address.is_ipv4() == is_v4)
    }
}

/// A named link must not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The link leads into our own tunnel.
    #[error("the link {link} is the device {device} of our own tunnel: the tunnel would carry itself")]
    Recursion {
        /// The link as the user named it.
        link: String,
        /// The device.
        device: String,
    },
}

/// Why `auto` does not take a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unused {
    /// The device is the end of our own tunnel.
    #[error("it is our own tunnel, which would carry itself")]
    OwnTunnel,
    /// The device is the end of another tunnel.
    #[error("it is a tunnel, which may run over the other links")]
    Tunnel,
    /// The device is the loopback device.
    #[error("it reaches this machine alone")]
    Loopback,
    /// The device is down.
    #[error("it is down")]
    Down,
    /// The device belongs to another one.
    #[error("it belongs to a bridge or a bond")]
    Member,
    /// The device has no address that reaches other machines.
    #[error("it has no address")]
    NoAddress,
    /// No default route leaves by the device.
    #[error("it has no default route")]
    NoDefaultRoute,
}

/// Why `auto` does not take the device; `None` if `auto` takes it. `own` are the names of the devices of our own
/// tunnels.
///
/// A default route is a promise that the device reaches other networks. Devices of hardware may have their routes in
/// other tables. Tunnels may run over the other links.
#[must_use]
pub fn unused(device: &Device, own: &[String]) -> Option<Unused> {
    if own.contains(&device.name) {
        return Some(Unused::OwnTunnel);
    }
    match device.kind {
        DeviceKind::Loopback => return Some(Unused::Loopback),
        DeviceKind::Tunnel => return Some(Unused::Tunnel),
        DeviceKind::Virtual | DeviceKind::Hardware => {}
    }
    if !device.is_up {
        Some(Unused::Down)
    } else if device.is_member {
        Some(Unused::Member)
    } else if device.addresses.is_empty() {
        Some(Unused::NoAddress)
    } else {
        (device.kind == DeviceKind::Virtual && !device.has_default_route).then_some(Unused::NoDefaultRoute)
    }
}

/// Finds the links that are there. A named link without a usable device is left out, because the device may come.
///
/// `own` are the names of the devices of our own tunnels.
///
/// # Errors
/// A named link is a device of our own tunnel.
pub fn select(choice: &LinkChoice, devices: &[Device], own: &[String]) -> Result<Vec<Link>, SelectError> {
    match choice {
        LinkChoice::Auto => {
            let found = devices.iter().filter(|device| unused(device, own).is_none());
            Ok(found.take(MAX_LINKS).map(|device| whole(device, Properties::default())).collect())
        }
        LinkChoice::Listed(specs) => {
            let mut links = Vec::new();
            for spec in specs {
                links.extend(find(spec, devices, own)?);
            }
            Ok(links)
        }
    }
}

fn is_usable(device: &Device) -> bool {
    device.is_up && !device.is_member && !device.addresses.is_empty()
}

fn find(spec: &LinkSpec, devices: &[Device], own: &[String]) -> Result<Option<Link>, SelectError> {
    let found = devices.iter().find(|device| match &spec.selector {
        Selector::Device(name) => device.name == *name,
        Selector::Address(address) => device.addresses.contains(address),
    });
    let Some(device) = found else { return Ok(None) };
    if own.contains(&device.name) {
        return Err(SelectError::Recursion { link: spec.selector.to_string(), device: device.name.clone() });
    }
    if !is_usable(device) {
        return Ok(None);
    }
    let mut link = whole(device, spec.properties);
    if let Selector::Address(address) = spec.selector {
        (link.name, link.addresses) = (address.to_string(), vec![address]);
    }
    Ok(Some(link))
}

fn whole(device: &Device, properties: Properties) -> Link {
    Link {
        name: device.name.clone(),
        index: device.index,
        device: device.name.clone(),
        addresses: device.addresses.clone(),
        mtu_bytes: device.mtu_bytes,
        properties,
    }
}
