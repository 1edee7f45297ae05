//! Associations of paths, which a connector asks for on a carrier of its own.

use std::{io, net::SocketAddr};

use sallyport_wire::{Associated, Refusal};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::EdgeTunnels;

/// Makes associations of paths. Their datagrams carry a QUIC connection, whose streams are carriers again.
pub trait Associate: Send + Sync + 'static {
    /// Makes an association for the connector at this address. Must be quick.
    ///
    /// # Errors
    /// The refusal that is sent to the connector.
    fn associate(&self, peer: SocketAddr) -> Result<Associated, Refusal>;
}

impl EdgeTunnels {
    /// Sets what makes associations, once. Without it, connectors are refused in one sentence.
    pub fn set_associate(&self, associate: std::sync::Arc<dyn Associate>) {
        let _ = self.shared.associate.set(associate);
    }

    pub(super) fn associate(&self, peer: SocketAddr) -> Result<Associated, Refusal> {
        let none = || Refusal::new("no-multipath", "this edge takes no tunnels over several paths", false);
        self.shared.associate.get().ok_or_else(none)?.associate(peer)
    }
}

pub(super) async fn send_association(mut io: impl AsyncWrite + Unpin, associated: &Associated) -> io::Result<()> {
    let mut frame = Vec::new();
    associated.encode(&mut frame);
    io.write_all(&frame).await?;
    io.shutdown().await
}
