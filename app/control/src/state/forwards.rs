//! Forwards of ssh clients: the client, the target, and what lives for as long as a forward.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_model::{AccountId, SocketId, SocketType, SshTunnelLogin, TunnelId};
use sallyport_store::{HolderId, Maker, Store, StoreError};
use sha2::{Digest, Sha256};

use crate::{
    problem::ApiError,
    security::{
        secrets::Secrets,
        token_bucket::{Limiter, Rate},
    },
};

/// How many sockets the clients of one address without an account have at a time (in IPv6: of one network of 64 bits).
pub const MAX_GUEST_SOCKETS_PER_ADDRESS: usize = 5;

/// The rate at which clients of one address without an account make sockets. A client that ends and makes forwards in a
/// loop would fill the audit log.
const GUEST_SOCKETS: Rate = Rate { burst: 60, every: Duration::from_secs(5) };

/// The time for which a tunnel of an ssh client may be missing at its edge before control removes it.
const MAX_ABSENCE: Duration = Duration::from_secs(60);

/// The socket and tunnel of a forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// The socket that clients use.
    pub socket: SocketId,
    /// The tunnel that the ssh client holds.
    pub tunnel: TunnelId,
    /// Whether the tunnel, and maybe the socket, were made for this forward.
    pub temporary: bool,
    /// The address at which clients reach the socket.
    pub url: String,
    /// The socket's own port, when it has one: the answer to a forward of port 0.
    pub port: Option<u16>,
}

/// An ssh client that asks for a forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshClient {
    /// The account of the client; [`sallyport_store::guest_account`] for a client without an account.
    pub account: AccountId,
    /// The fingerprint of the key that the client has proven to hold. The same key gets the same names and ports again.
    pub key: Option<String>,
    /// The one tunnel that the client may serve, for a login with a certificate for it.
    pub only: Option<SshTunnelLogin>,
    /// The address of the client.
    pub address: IpAddr,
    /// The holder of the client's connection, when another process holds it.
    pub holder: Option<HolderId>,
}

/// Why a forward is refused, in a sentence for the ssh client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ForwardRefusal {
    /// The sentence.
    pub message: String,
}

impl From<ApiError> for ForwardRefusal {
    fn from(error: ApiError) -> Self {
        if let Some(inside) = error.inner() {
            tracing::error!(error = inside, "a forward of an ssh client failed");
        }
        Self { message: error.sentence().to_owned() }
    }
}

impl From<StoreError> for ForwardRefusal {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

/// Sockets and tunnels that this process made for forwards that have not ended.
pub(crate) struct TemporaryForwards {
    /// The id of this process as a holder in the store.
    pub(crate) holder: HolderId,
    tunnels: Mutex<HashSet<TunnelId>>,
    /// Things that edges hold and that are missing from the directory, with the time since when.
    absent: Mutex<HashMap<[u8; 16], Instant>>,
    /// The addresses of clients without an account that have a socket; no more than
    /// [`sallyport_store::MAX_GUEST_SOCKETS`].
    guests: Mutex<HashMap<TunnelId, IpAddr>>,
    guest_rate: Mutex<Limiter<IpAddr>>,
    /// Held while a socket or tunnel is made, so that a sweep does not remove it as a remainder.
    pub(crate) making: tokio::sync::Mutex<()>,
    /// Key of the hash of makers, so that the store does not reveal clients.
    maker_key: [u8; 32],
}

impl TemporaryForwards {
    pub(crate) fn new(secrets: &Secrets, holder: HolderId) -> Self {
        let (tunnels, absent, guests, making) = Default::default();
        let guest_rate = Mutex::new(Limiter::new(GUEST_SOCKETS));
        Self { holder, tunnels, absent, guests, guest_rate, making, maker_key: secrets.derived("makers of sockets") }
    }

    /// The maker of a temporary socket, which may have the socket's name and port again. `None` for clients without a
    /// key.
    pub(crate) fn maker(&self, client: &SshClient, socket_type: SocketType, port: Option<u16>) -> Option<Maker> {
        let mut hash = Sha256::new();
        hash.update(self.maker_key);
        hash.update(client.account.as_bytes());
        hash.update(client.key.as_ref()?);
        hash.update([0]);
        hash.update(socket_type.as_str());
        hash.update(port.unwrap_or(0).to_be_bytes());
        Some(hash.finalize().into())
    }

    pub(crate) fn added(&self, tunnel: TunnelId) {
        self.tunnels.lock().insert(tunnel);
    }

    pub(crate) fn ended(&self, tunnel: TunnelId) {
        self.tunnels.lock().remove(&tunnel);
        self.guests.lock().remove(&tunnel);
    }

    /// Whether a client without an account at this address may have one more socket; only while `making` is held.
    pub(crate) fn admit_guest(&self, address: IpAddr, now: Instant) -> Result<(), ForwardRefusal> {
        if self.guests.lock().values().filter(|of| **of == address).count() >= MAX_GUEST_SOCKETS_PER_ADDRESS {
            let message = format!(
                "no more than {MAX_GUEST_SOCKETS_PER_ADDRESS} sockets without an account for one address at a time: \
                 end a forward, or log in with an account"
            );
            return Err(ForwardRefusal { message });
        }
        self.guest_rate.lock().take(&address, now).map_err(|wait| ForwardRefusal {
            message: format!(
                "too many sockets without an account for one address: wait {} seconds, or log in with an account",
                wait.as_secs() + 1
            ),
        })
    }

    pub(crate) fn guest_came(&self, tunnel: TunnelId, address: IpAddr) {
        self.guests.lock().insert(tunnel, address);
    }

    /// Whether a thing that an edge holds has been missing for [`MAX_ABSENCE`].
    pub(crate) fn is_lost(&self, thing: [u8; 16], is_seen: bool, now: Instant) -> bool {
        let mut absent = self.absent.lock();
        if is_seen {
            absent.remove(&thing);
            return false;
        }
        absent.retain(|_, since| now.saturating_duration_since(*since) < 10 * MAX_ABSENCE);
        let since = *absent.entry(thing).or_insert(now);
        now.saturating_duration_since(since) >= MAX_ABSENCE
    }

    /// Removes from the store what was made for forwards whose holder is gone: a former life of this process, or a
    /// holder that `lives` denies. Returns the sockets that are gone, and those that lost a tunnel.
    pub(crate) async fn sweep(
        &self,
        store: &Store,
        lives: impl Fn(HolderId, [u8; 16]) -> bool,
    ) -> Result<SweptForwards, StoreError> {
        let _turn = self.making.lock().await;
        let tunnels = store.temporary_tunnels().await?;
        let (kept, left): (Vec<_>, Vec<_>) = {
            let ours = self.tunnels.lock();
            tunnels.into_iter().partition(|(_, tunnel, holder)| match holder {
                Some(holder) if *holder == self.holder => ours.contains(tunnel),
                Some(holder) => lives(*holder, *tunnel.as_bytes()),
                None => false,
            })
        };
        let there: HashSet<TunnelId> = kept.iter().map(|(_, tunnel, _)| *tunnel).collect();
        self.guests.lock().retain(|tunnel, _| there.contains(tunnel));
        let kept: HashSet<SocketId> = kept.into_iter().map(|(socket, ..)| socket).collect();
        let mut swept = SweptForwards::default();
        for (account, socket, holder) in store.temporary_sockets().await? {
            // Another one may just be about to give it its tunnel.
            let is_theirs = holder.is_some_and(|holder| holder != self.holder && lives(holder, *socket.as_bytes()));
            if !kept.contains(&socket) && !is_theirs && store.delete_socket(account, socket).await? {
                swept.gone.push(socket);
            }
        }
        for (socket, tunnel, _) in left {
            if store.delete_tunnel(socket, tunnel).await? {
                swept.changed.push(socket);
            }
        }
        Ok(swept)
    }
}

/// The result of a sweep.
#[derive(Debug, Default)]
pub(crate) struct SweptForwards {
    /// The sockets that the sweep removed.
    pub(crate) gone: Vec<SocketId>,
    /// The sockets that lost a tunnel.
    pub(crate) changed: Vec<SocketId>,
}
