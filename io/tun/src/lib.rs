//! A TUN device: packets between the kernel and a program, by tun-rs; its addresses and routes, by netlink.
//!
//! A packet has its virtio header before it (virtio 1.2, section 5.1.6), so trains of segments stay whole in both
//! directions. The device is not persistent: the kernel removes the device with its addresses and routes when the
//! program closes it or ends, however that happens.
#![cfg(target_os = "linux")]

mod routes;

use std::{io, net::IpAddr, os::fd::AsFd as _};

use ipnet::IpNet;
use rustix::io::ioctl_fionbio;
use tokio::{io::unix::AsyncFd, sync::Mutex};
use tun_rs::{DeviceBuilder, SyncDevice};

use self::routes::Netlink;

/// The longest name of a device, in bytes: the limit of Linux.
pub const MAX_DEVICE_NAME_BYTES: usize = 15;
/// How many packets may wait in the device for the program.
const QUEUE_PACKETS: u32 = 1_000;

/// Why there is no device, or not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The kernel has no TUN devices.
    #[error(
        "this machine has no /dev/net/tun: load the kernel's module by `modprobe tun`, or give the container the device"
    )]
    NoTun,
    /// The program may not make devices.
    #[error("only root may make the device {0}: run the command by sudo, or give it CAP_NET_ADMIN")]
    NotPermitted(String),
    /// Another device has the name.
    #[error("another program has the device {0}: is the machine in the network already? `ip link show {0}` shows it")]
    Taken(String),
    /// The kernel makes no such device.
    #[error("the device {0} cannot be made: {1}")]
    Open(String, io::Error),
    /// An address or a route is refused.
    #[error("the device {device} cannot have the {what} {net}: {error}")]
    Refused {
        /// The device.
        device: String,
        /// "address" or "route".
        what: &'static str,
        /// The address or route.
        net: IpNet,
        /// What the kernel says.
        error: String,
    },
    /// Netlink does not work.
    #[error("the kernel does not answer by netlink: {0}")]
    Netlink(io::Error),
}

/// A TUN device that is up.
pub struct Device {
    name: String,
    index: u32,
    device: AsyncFd<SyncDevice>,
    /// The routes that lead here.
    routes: Mutex<Vec<IpNet>>,
    addresses: Vec<IpAddr>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a device with these addresses, each with the prefix of the network that the device leads to.
    ///
    /// # Errors
    /// The kernel has no TUN devices, the program may not make them, the name is taken, or an address is refused.
    pub async fn open(name: &str, addresses: &[IpNet], mtu_bytes: u16) -> Result<Self, TunError> {
        let builder = DeviceBuilder::new().name(name).mtu(mtu_bytes).offload(true).tx_queue_len(QUEUE_PACKETS);
        let device = builder.build_sync().map_err(|error| open_error(name, error))?;
        let failed = |error: io::Error| TunError::Open(name.to_owned(), error);
        ioctl_fionbio(device.as_fd(), true).map_err(|error| failed(error.into()))?;
        let index = device.if_index().map_err(failed)?;
        #[expect(
            deprecated,
            reason = "what it warns of are types that lie about their descriptor; a device owns its own to the end"
        )]
        let device = AsyncFd::new(device).map_err(failed)?;
        let netlink = Netlink::open().map_err(TunError::Netlink)?;
        for address in addresses {
            let added = netlink.add_address(index, *address).await;
            added.map_err(|error| refused(name, "address", *address, error))?;
        }
        let addresses = addresses.iter().map(IpNet::addr).collect();
        Ok(Self { name: name.to_owned(), index, device, routes: Mutex::default(), addresses })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Has these routes lead to the device, and no others. Packets by them leave with the device's own address. A
    /// route of a family of which the device has no address is left out. Returns what the kernel refuses; the other
    /// routes are set.
    pub async fn set_routes(&self, routes: &[IpNet]) -> Vec<TunError> {
        let netlink = match Netlink::open() {
            Ok(netlink) => netlink,
            Err(error) => return vec![TunError::Netlink(error)],
        };
        let mut refusals = Vec::new();
        let mut present = self.routes.lock().await;
        for gone in present.extract_if(.., |route| !routes.contains(route)) {
            if let Err(error) = netlink.remove_route(self.index, gone).await {
                refusals.push(refused(&self.name, "route", gone, error));
            }
        }
        for route in routes {
            let source = self.addresses.iter().find(|address| address.is_ipv4() == route.addr().is_ipv4());
            let Some(source) = source.filter(|_| !present.contains(route)) else { continue };
            match netlink.add_route(self.index, *route, *source).await {
                Ok(()) => present.push(*route),
                Err(error) => refusals.push(refused(&self.name, "route", *route, error)),
            }
        }
        refusals
    }

    /// The next packet of the kernel, with its virtio header. Returns the number of bytes. Cancel safe.
    ///
    /// # Errors
    /// The device is gone.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.device.readable().await?;
            if let Ok(received) = ready.try_io(|device| device.get_ref().recv(buffer)) {
                return received;
            }
        }
    }

    /// Gives the kernel a packet with its virtio header.
    ///
    /// # Errors
    /// The kernel refuses the packet ([`io::ErrorKind::InvalidInput`]), or the device is gone or down.
    pub fn send(&self, parcel: &[u8]) -> io::Result<()> {
        self.device.get_ref().send(parcel).map(drop)
    }
}

fn refused(device: &str, what: &'static str, net: IpNet, error: String) -> TunError {
    TunError::Refused { device: device.to_owned(), what, net, error }
}

fn open_error(name: &str, error: io::Error) -> TunError {
    match error.kind() {
        io::ErrorKind::NotFound => TunError::NoTun,
        io::ErrorKind::PermissionDenied => TunError::NotPermitted(name.to_owned()),
        // The name is of a device of another kind, or of one that a program holds.
        io::ErrorKind::ResourceBusy | io::ErrorKind::InvalidInput => TunError::Taken(name.to_owned()),
        _ => TunError::Open(name.to_owned(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_the_kernel_has_a_remedy() {
        let said = |kind: io::ErrorKind| open_error("sp-office", kind.into()).to_string();
        assert!(said(io::ErrorKind::NotFound).contains("modprobe tun"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("CAP_NET_ADMIN"));
        assert!(said(io::ErrorKind::ResourceBusy).contains("ip link show sp-office"));
        assert!(said(io::ErrorKind::OutOfMemory).starts_with("the device sp-office cannot be made"));
    }
}
