//! The associations of an edge, which share the sockets of its QUIC port.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use quinn::{AsyncUdpSocket, udp::RecvMeta};
use sallyport_multipath::{AssociationId, Config, HEADER_BYTE, Header, Secret, Setup, Side};
use sallyport_quic::Sharing;

use crate::association::{Multipath, Shared};

/// The most associations of one edge at a time.
pub const MAX_ASSOCIATIONS: usize = 4_096;

/// All associations of an edge.
pub struct Associations {
    config: Config,
    /// A socket of the port, by which all packets leave.
    socket: Arc<dyn AsyncUdpSocket>,
    by_id: Mutex<HashMap<AssociationId, Weak<Shared>>>,
    unknown: AtomicU64,
}

/// What the connector must know of a new association. The connection that carries it must be encrypted.
pub struct Offer {
    /// The edge's end.
    pub edge: AssociationId,
    /// The connector's end.
    pub connector: AssociationId,
    /// The secret of the association.
    pub secret: [u8; 32],
}

impl Offer {
    fn random() -> io::Result<Self> {
        let mut offer = Self { edge: AssociationId([0; 8]), connector: AssociationId([0; 8]), secret: [0; 32] };
        for bytes in [&mut offer.edge.0[..], &mut offer.connector.0, &mut offer.secret] {
            getrandom::fill(bytes).map_err(io::Error::other)?;
        }
        Ok(offer)
    }

    /// The association, as one of its ends has it.
    #[must_use]
    pub fn setup(&self, side: Side) -> Setup {
        let (local, remote) = match side {
            Side::Edge => (self.edge, self.connector),
            Side::Connector => (self.connector, self.edge),
        };
        Setup { side, local, remote, secret: Secret::new(self.secret) }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("edge", &self.edge).finish_non_exhaustive()
    }
}

impl fmt::Debug for Associations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Associations").field("open", &self.len()).finish_non_exhaustive()
    }
}

impl Associations {
    /// No associations yet. Their packets leave by `socket`, a socket of the port.
    #[must_use]
    pub fn new(config: Config, socket: Arc<dyn AsyncUdpSocket>) -> Arc<Self> {
        Arc::new(Self { config, socket, by_id: Mutex::default(), unknown: AtomicU64::new(0) })
    }

    /// Makes an association, whose end ends it. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// There are too many, or the system gives no random bytes.
    pub fn open(&self) -> io::Result<(Arc<Multipath>, Offer)> {
        let mut by_id = self.by_id.lock();
        if by_id.len() >= MAX_ASSOCIATIONS {
            by_id.retain(|_, shared| shared.strong_count() > 0);
        }
        if by_id.len() >= MAX_ASSOCIATIONS {
            return Err(io::Error::other(format!("the edge has {MAX_ASSOCIATIONS} associations of paths already")));
        }
        let offer = Offer::random()?;
        let multipath = Multipath::with_port(self.config, &offer.setup(Side::Edge), Some(self.socket.clone()));
        by_id.insert(offer.edge, Arc::downgrade(multipath.shared()));
        Ok((multipath, offer))
    }

    /// How many associations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.lock().values().filter(|shared| shared.strong_count() > 0).count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Batches of packets whose association is not here.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }
}

impl Sharing for Associations {
    fn is_its(&self, batch: &[u8]) -> bool {
        batch.first() == Some(&HEADER_BYTE)
    }

    fn receive(&self, meta: &RecvMeta, batch: &mut [u8]) -> bool {
        let id = Header::parse(batch).map(|header| header.association);
        let shared = id.and_then(|id| self.by_id.lock().get(&id)?.upgrade());
        match shared {
            Some(shared) => shared.receive(meta, batch),
            None => {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        }
        true
    }
}
