//! What the tables hold: sessions, and the use of the pool.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use libbpf_rs::{MapCore as _, MapFlags};
use sallyport_packet_model::nat::{Session, SessionState};

use crate::{
    Router, XdpError, dump,
    error::asked,
    nat::{NatEngine, Settings, end_of},
    pins,
};

/// The use of the ports of an address outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortUse {
    /// The address.
    pub address: Ipv4Addr,
    /// TCP, UDP or ICMP.
    pub protocol: u8,
    /// Ports or identifiers in use; forwarded ports too.
    pub used: usize,
}

/// The use of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// The addresses with ports in use.
    pub ports: Vec<PortUse>,
    /// Ports of an address.
    pub room: usize,
    /// Sessions.
    pub sessions: usize,
    /// The most sessions.
    pub max_sessions: usize,
}

impl Router {
    /// The seed of the NAT that stands, so that mappings stay.
    #[must_use]
    pub fn nat_seed(&self) -> Option<u32> {
        Some(Settings::standing(self.pins())).filter(|settings| settings.engine().is_some()).map(|found| found.seed())
    }

    /// The mark of the NAT that stands.
    #[must_use]
    pub fn nat_mark(&self) -> Option<[u8; 6]> {
        Some(Settings::standing(self.pins())).filter(|settings| settings.engine().is_some()).map(|found| found.mark())
    }

    /// Whether connection tracking took odd segments before the router shared it; `None` if the router does not.
    #[must_use]
    pub fn was_liberal(&self) -> Option<bool> {
        let settings = Settings::standing(self.pins());
        (settings.engine() == Some(NatEngine::Conntrack)).then(|| settings.was_liberal())
    }

    /// What translates, if the router stands and has a NAT.
    ///
    /// # Errors
    /// No router stands.
    pub fn nat_engine(&self) -> Result<Option<NatEngine>, XdpError> {
        pins::map(self.pins(), "nat_settings")?;
        Ok(Settings::standing(self.pins()).engine())
    }

    /// The sessions of the program's own tables, at most so many.
    ///
    /// # Errors
    /// No router stands, or it has no NAT with tables.
    pub fn nat_sessions(&self, most: usize) -> Result<Vec<Session>, XdpError> {
        self.require_tables()?;
        let map = pins::map(self.pins(), "nat_sessions")?;
        let mut sessions = Vec::new();
        for key in map.keys().take(most) {
            // A session may end meanwhile.
            let value = map.lookup(&key, MapFlags::ANY).map_err(asked("read the sessions"))?;
            sessions.extend(value.and_then(|value| session_of(&key, &value)));
        }
        // What has ended is still there for a moment.
        sessions.retain(|session| !session.expires.is_zero());
        sessions.sort_by_key(|session| (session.inside, session.remote));
        Ok(sessions)
    }

    /// The use of the pool.
    ///
    /// # Errors
    /// No router stands, or it has no NAT with tables.
    pub fn nat_pool(&self) -> Result<PoolUse, XdpError> {
        self.require_tables()?;
        let settings = Settings::standing(self.pins());
        let pool = pins::map(self.pins(), "nat_pool")?;
        let mut used = BTreeMap::new();
        for index in 0..settings.pool() {
            let found = pool.lookup(&index.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the pool"))?;
            if let Some(bytes) = found.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()) {
                for protocol in [6, 17, 1] {
                    used.insert((Ipv4Addr::from(bytes), protocol), 0);
                }
            }
        }
        let externals = pins::map(self.pins(), "nat_externals")?;
        for key in externals.keys().take(externals.max_entries() as usize) {
            if let Some(end) = end_of(&key) {
                *used.entry((end.address, end.protocol)).or_insert(0) += 1;
            }
        }
        let state = pins::map(self.pins(), "nat_state")?;
        let state = state.lookup(&[0; 4], MapFlags::ANY).map_err(asked("read the number of sessions"))?;
        let sessions = state.and_then(|state| Some(i64::from_ne_bytes(state.get(..8)?.try_into().ok()?)));
        let (first, last) = settings.ports();
        let ports = used.into_iter().map(|((address, protocol), used)| PortUse { address, protocol, used });
        Ok(PoolUse {
            ports: ports.collect(),
            room: usize::from(last) + 1 - usize::from(first),
            sessions: sessions.and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
            max_sessions: settings.max_sessions() as usize,
        })
    }

    pub(super) fn require_tables(&self) -> Result<(), XdpError> {
        match self.nat_engine()? {
            Some(NatEngine::Xdp) => Ok(()),
            _ => Err(XdpError::NoNat),
        }
    }
}

/// A session of `struct nat_key` and `struct nat_session`.
fn session_of(key: &[u8], value: &[u8]) -> Option<Session> {
    let word = |at: usize| Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let state = match word(32)? {
        0 => SessionState::Datagrams,
        1 => SessionState::Opening,
        2 => SessionState::Answered,
        3 => SessionState::Established,
        _ => SessionState::Closing,
    };
    Some(Session {
        inside: end_of(key)?,
        external: end_of(value)?,
        remote: peer_of(key.get(8..14)?)?,
        state,
        is_outbound: word(36)? != 0,
        expires: Duration::from_nanos(long(8)?).saturating_sub(dump::now()),
    })
}

/// The peer: address and port.
pub(super) fn peer_of(bytes: &[u8]) -> Option<SocketAddrV4> {
    let [a, b, c, d, high, low] = <[u8; 6]>::try_from(bytes).ok()?;
    Some(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])))
}
