//! Associations of paths, which a connector asks for on a carrier of its own.

use std::{io, net::SocketAddr};

use sallyport_wire::{Associate, Associated, Refusal};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::EdgeTunnels;

/// Makes associations of paths. Their datagrams carry a QUIC connection, whose streams are carriers again.
pub trait Associations: Send + Sync + 'static {
    /// Makes an association for the connector at this address, if the credential is right. Must be quick.
    ///
    /// # Errors
    /// The refusal that is sent to the connector.
    fn associate(&self, question: &Associate, peer: SocketAddr) -> Result<Associated, Refusal>;
}

impl EdgeTunnels {
    /// Sets what makes associations, once. Without it, connectors are refused in one sentence.
    pub fn set_associations(&self, associations: std::sync::Arc<dyn Associations>) {
        let _ = self.shared.associations.set(associations);
    }

    pub(super) fn associate(&self, question: &Associate, peer: SocketAddr) -> Result<Associated, Refusal> {
        let none = || Refusal::new("no-multipath", "this edge takes no tunnels over several paths", false);
        self.shared.associations.get().ok_or_else(none)?.associate(question, peer)
    }
}

pub(super) async fn send_association(mut io: impl AsyncWrite + Unpin, associated: &Associated) -> io::Result<()> {
    let mut frame = Vec::new();
    associated.encode(&mut frame);
    io.write_all(&frame).await?;
    io.shutdown().await
}
