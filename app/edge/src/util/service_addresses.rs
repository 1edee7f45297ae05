//! The service addresses of this machine's interface.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    future::poll_fn,
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    pin::pin,
    time::Duration,
};

use futures_core::Stream;
use rtnetlink::{
    Error as NetlinkError, Handle,
    packet_route::{
        address::{AddressAttribute, AddressMessage},
        link::LinkAttribute,
    },
};
use serde::{Deserialize, Serialize};

/// How long the kernel may take.
const NETLINK_TIME: Duration = Duration::from_secs(2);
/// The most addresses of this machine that are looked at.
const MAX_ADDRESSES: usize = 16_384;
/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The number of the loopback device.
const LOOPBACK: u32 = 1;
/// The error of the kernel for an address that is there already (EEXIST), and for one that is not (EADDRNOTAVAIL).
const EXISTS: i32 = -17;
const NOT_THERE: i32 = -99;

/// The addresses that this edge has added, and no others: what others added is never removed. The file outlives the
/// process, so that the next one removes what a killed one left.
#[derive(Debug)]
pub(crate) struct ServiceAddresses {
    interface: String,
    file: PathBuf,
    own: BTreeSet<IpAddr>,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    interface: String,
    addresses: BTreeSet<IpAddr>,
}

impl ServiceAddresses {
    /// The addresses that a former process has added to this interface.
    pub(crate) fn open(interface: String, file: PathBuf) -> Self {
        let read = fs::metadata(&file).is_ok_and(|known| known.len() <= MAX_FILE_BYTES);
        let kept: Kept = read
            .then(|| fs::read(&file).ok())
            .flatten()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        // Those at another interface are that interface's: they are looked for when it is the one again.
        let own = if kept.interface == interface { kept.addresses } else { BTreeSet::new() };
        Self { interface, file, own }
    }

    /// The addresses that this edge has added.
    pub(crate) fn own(&self) -> &BTreeSet<IpAddr> {
        &self.own
    }

    /// Adds an address. One that is there already stays whose it was.
    pub(crate) async fn add(&mut self, address: IpAddr) -> Result<(), String> {
        let is_new = self.own.insert(address);
        if is_new && let Err(error) = self.write() {
            self.own.remove(&address);
            return Err(error);
        }
        match within(self.ask(address, true)).await {
            Err(NetlinkFailure::Code(EXISTS)) if !is_new => Ok(()),
            Err(NetlinkFailure::Code(EXISTS)) => {
                self.own.remove(&address);
                self.write()
            }
            Err(error) => Err(format!("{address} cannot be added to {}: {error}", self.interface)),
            Ok(()) => Ok(()),
        }
    }

    /// Removes an address that this edge has added.
    pub(crate) async fn remove(&mut self, address: IpAddr) -> Result<(), String> {
        if !self.own.contains(&address) {
            return Ok(());
        }
        match within(self.ask(address, false)).await {
            Ok(()) | Err(NetlinkFailure::Code(NOT_THERE)) => {
                self.own.remove(&address);
                self.write()
            }
            Err(error) => Err(format!("{address} cannot be removed from {}: {error}", self.interface)),
        }
    }

    async fn ask(&self, address: IpAddr, adds: bool) -> Result<(), NetlinkFailure> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(NetlinkFailure::Io)?;
        let running = tokio::spawn(connection);
        let result = async {
            let index = index_of(&handle, &self.interface).await?;
            let length = if address.is_ipv4() { 32 } else { 128 };
            if adds {
                return Ok(handle.address().add(index, address, length).execute().await?);
            }
            let Some(found) = address_of(&handle, index, address).await? else { return Ok(()) };
            Ok(handle.address().del(found).execute().await?)
        };
        let result = result.await;
        running.abort();
        result
    }

    /// Writes the file as a whole.
    fn write(&self) -> Result<(), String> {
        let kept = Kept { interface: self.interface.clone(), addresses: self.own.clone() };
        let draft = self.file.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec(&kept)?)?;
            file.sync_all()?;
            fs::rename(&draft, &self.file)
        };
        write().map_err(|error| format!("cannot write {}: {error}", self.file.display()))
    }
}

/// Why the kernel did not do as asked.
#[derive(Debug, thiserror::Error)]
enum NetlinkFailure {
    #[error("there is no such interface")]
    NoInterface,
    #[error("the kernel does not answer")]
    Silent,
    #[error("{}", io::Error::from_raw_os_error(.0.abs()))]
    Code(i32),
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Other(String),
}

impl From<NetlinkError> for NetlinkFailure {
    fn from(error: NetlinkError) -> Self {
        match error {
            NetlinkError::NetlinkError(message) => match message.code {
                Some(code) => Self::Code(code.get()),
                None => Self::Other("the kernel refuses without a reason".to_owned()),
            },
            other => Self::Other(other.to_string()),
        }
    }
}

async fn within<T>(ask: impl Future<Output = Result<T, NetlinkFailure>>) -> Result<T, NetlinkFailure> {
    tokio::time::timeout(NETLINK_TIME, ask).await.unwrap_or(Err(NetlinkFailure::Silent))
}

/// The next item of a stream.
async fn next<T>(mut stream: std::pin::Pin<&mut impl Stream<Item = T>>) -> Option<T> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

async fn index_of(handle: &Handle, name: &str) -> Result<u32, NetlinkFailure> {
    let mut links = pin!(handle.link().get().match_name(name.to_owned()).execute());
    match next(links.as_mut()).await {
        Some(Ok(link)) => Ok(link.header.index),
        // ENODEV.
        Some(Err(NetlinkError::NetlinkError(message))) if message.code.is_some_and(|code| code.get() == -19) => {
            Err(NetlinkFailure::NoInterface)
        }
        Some(Err(error)) => Err(error.into()),
        None => Err(NetlinkFailure::NoInterface),
    }
}

/// The name of the device that has an address; `None` if none has it.
pub(crate) async fn device_of(wanted: IpAddr) -> Result<Option<String>, String> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(|error| error.to_string())?;
    let running = tokio::spawn(connection);
    let found = within(async {
        let mut all = pin!(handle.address().get().execute());
        for _ in 0..MAX_ADDRESSES {
            let Some(found) = next(all.as_mut()).await else { return Ok(None) };
            let found = found?;
            let is_it = |attribute: &AddressAttribute| *attribute == AddressAttribute::Address(wanted);
            if found.header.index != LOOPBACK && found.attributes.iter().any(is_it) {
                return name_of(&handle, found.header.index).await;
            }
        }
        Ok(None)
    });
    let found = found.await.map_err(|error| format!("the devices of this machine cannot be listed: {error}"));
    running.abort();
    found
}

async fn name_of(handle: &Handle, index: u32) -> Result<Option<String>, NetlinkFailure> {
    let mut links = pin!(handle.link().get().match_index(index).execute());
    let Some(link) = next(links.as_mut()).await else { return Ok(None) };
    let name = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    };
    Ok(link?.attributes.iter().find_map(name))
}

/// The message of an address of an interface, which removes it.
async fn address_of(handle: &Handle, index: u32, wanted: IpAddr) -> Result<Option<AddressMessage>, NetlinkFailure> {
    let mut all = pin!(handle.address().get().execute());
    let length = if wanted.is_ipv4() { 32 } else { 128 };
    for _ in 0..MAX_ADDRESSES {
        let Some(found) = next(all.as_mut()).await else { return Ok(None) };
        let found = found?;
        let is_it = |attribute: &AddressAttribute| *attribute == AddressAttribute::Address(wanted);
        let is_whole = found.header.prefix_len == length;
        if found.header.index == index && is_whole && found.attributes.iter().any(is_it) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_known_after_a_restart_and_a_damaged_file_is_of_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("anycast.json");
        let mut addresses = ServiceAddresses::open("lo".to_owned(), file.clone());
        addresses.own.insert("198.51.100.1".parse().unwrap());
        addresses.write().unwrap();
        let again = ServiceAddresses::open("lo".to_owned(), file.clone());
        assert_eq!(again.own(), addresses.own());
        assert!(ServiceAddresses::open("dummy0".to_owned(), file.clone()).own().is_empty());
        fs::write(&file, "{").unwrap();
        assert!(ServiceAddresses::open("lo".to_owned(), file).own().is_empty());
    }
}
