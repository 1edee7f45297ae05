//! TLS between edges: both show their machine certificates, which are renewed while the edge runs.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;
use rustls::{ClientConfig, ServerConfig};

/// The certificates of an edge, for links that it accepts and links that it makes.
#[derive(Clone)]
pub struct MeshTlsPair {
    /// TLS 1.3 with [`sallyport_wire::MESH_ALPN`], which requires a machine certificate of the client.
    pub server: Arc<ServerConfig>,
    /// TLS 1.3 with [`sallyport_wire::MESH_ALPN`] and a certificate of this machine.
    pub client: Arc<ClientConfig>,
}

/// The current certificates of an edge; clones share them.
#[derive(Clone)]
pub struct MeshTls(Arc<RwLock<MeshTlsPair>>);

impl fmt::Debug for MeshTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeshTls(..)")
    }
}

impl MeshTls {
    /// Holds these certificates.
    #[must_use]
    pub fn new(pair: MeshTlsPair) -> Self {
        Self(Arc::new(RwLock::new(pair)))
    }

    /// Uses these certificates from the next connection on.
    pub fn give(&self, pair: MeshTlsPair) {
        *self.0.write() = pair;
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.0.read().client.clone()
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.0.read().server.clone()
    }
}
