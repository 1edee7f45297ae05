//! Addresses and routes of a device, by netlink.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ipnet::IpNet;
use rtnetlink::{Error, Handle, RouteMessageBuilder, packet_route::route::RouteMessage};
use tokio::{task::JoinHandle, time::timeout};

/// How long the kernel may take.
const TIME: Duration = Duration::from_secs(10);
/// The error of a route that is not there: its device has lost the route in another way.
const NOT_THERE: i32 = -3;

/// A connection to the kernel, closed at the end.
pub(crate) struct Netlink {
    handle: Handle,
    running: JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self { handle, running: tokio::spawn(connection) })
    }

    /// Adds an address, and the route to the network of its prefix.
    pub(crate) async fn add_address(&self, device: u32, address: IpNet) -> Result<(), String> {
        let adding = self.handle.address().add(device, address.addr(), address.prefix_len()).execute();
        within(adding).await
    }

    /// Adds a route by the device, for packets that leave with this address.
    pub(crate) async fn add_route(&self, device: u32, route: IpNet, source: IpAddr) -> Result<(), String> {
        within(self.handle.route().add(message(device, route, Some(source))).execute()).await
    }

    /// Removes a route by the device.
    pub(crate) async fn remove_route(&self, device: u32, route: IpNet) -> Result<(), String> {
        let removing = self.handle.route().del(message(device, route, None)).execute();
        match timeout(TIME, removing).await {
            Ok(Err(Error::NetlinkError(message))) if message.raw_code() == NOT_THERE => Ok(()),
            Ok(removed) => removed.map_err(text),
            Err(_) => Err(silent()),
        }
    }
}

fn message(device: u32, route: IpNet, source: Option<IpAddr>) -> RouteMessage {
    match (route, source) {
        (IpNet::V4(route), source) => {
            let builder = RouteMessageBuilder::<Ipv4Addr>::new();
            let builder = builder.destination_prefix(route.network(), route.prefix_len()).output_interface(device);
            match source {
                Some(IpAddr::V4(source)) => builder.pref_source(source).build(),
                _ => builder.build(),
            }
        }
        (IpNet::V6(route), source) => {
            let builder = RouteMessageBuilder::<Ipv6Addr>::new();
            let builder = builder.destination_prefix(route.network(), route.prefix_len()).output_interface(device);
            match source {
                Some(IpAddr::V6(source)) => builder.pref_source(source).build(),
                _ => builder.build(),
            }
        }
    }
}

async fn within(asking: impl Future<Output = Result<(), Error>>) -> Result<(), String> {
    timeout(TIME, asking).await.map_err(|_| silent())?.map_err(text)
}

fn silent() -> String {
    format!("the kernel has not answered within {} seconds", TIME.as_secs())
}

/// What the kernel says, in its own words.
fn text(error: Error) -> String {
    match error {
        Error::NetlinkError(message) => message.to_io().to_string(),
        error => error.to_string(),
    }
}
