//! Another protocol at the same port (RFC 9443).

use std::fmt;

use quinn::udp::RecvMeta;

/// A protocol whose datagrams differ from those of QUIC in the first byte: QUIC's fixed bit (0x40) is clear.
///
/// The calls come from the tasks that read the sockets, and must be quick.
pub trait Sharing: fmt::Debug + Send + Sync {
    /// Whether the batch is of this protocol. A batch has one sender and one or more datagrams of equal length.
    fn is_its(&self, batch: &[u8]) -> bool;

    /// Takes a batch, whose bytes may be decrypted in place. Returns whether the batch is of a peer of this process;
    /// otherwise the batch goes to former processes.
    fn receive(&self, meta: &RecvMeta, batch: &mut [u8]) -> bool;
}
