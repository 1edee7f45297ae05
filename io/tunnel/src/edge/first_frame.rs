//! The first frame of a carrier, which declares the carrier's purpose, and the answer if the carrier is refused.

use sallyport_wire::{
    Associate, Carrier as CarrierKind, FrameHeader, Hello, Join, JoinNetwork, Refusal, Violation, frame::HEADER_BYTES,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The declared purpose of a new carrier.
pub(super) enum FirstFrame {
    Control { hello: Hello, frame: Vec<u8> },
    Leg(Join),
    Datagrams(Join),
    Association(Associate),
    Network(JoinNetwork),
}

impl FirstFrame {
    pub(super) fn kind(&self) -> CarrierKind {
        match self {
            Self::Control { .. } => CarrierKind::Control,
            Self::Leg(_) => CarrierKind::Leg,
            Self::Datagrams(_) => CarrierKind::Datagrams,
            Self::Association(_) => CarrierKind::Association,
            Self::Network(_) => CarrierKind::Packets,
        }
    }
}

/// Reason why a new carrier is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FirstFrameError {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Hello(Violation),
    #[error("the connection ended: {0}")]
    Ended(#[from] std::io::Error),
}

pub(super) async fn read_first_frame(io: &mut (impl AsyncRead + Unpin)) -> Result<FirstFrame, FirstFrameError> {
    let mut header = [0; HEADER_BYTES];
    io.read_exact(&mut header).await?;
    let (decoded, kind) = FrameHeader::decode_first(header)?;
    let mut frame = header.to_vec();
    frame.resize(HEADER_BYTES + decoded.len as usize, 0);
    io.read_exact(&mut frame[HEADER_BYTES..]).await?;
    let payload = &frame[HEADER_BYTES..];
    Ok(match kind {
        CarrierKind::Control => {
            FirstFrame::Control { hello: Hello::decode(payload).map_err(FirstFrameError::Hello)?, frame }
        }
        CarrierKind::Leg => FirstFrame::Leg(Join::decode(payload)?),
        CarrierKind::Datagrams => FirstFrame::Datagrams(Join::decode(payload)?),
        CarrierKind::Association => FirstFrame::Association(Associate::decode(payload)?),
        CarrierKind::Packets => FirstFrame::Network(JoinNetwork::decode(payload)?),
    })
}

pub(super) async fn send_refusal(mut io: impl AsyncWrite + Unpin, refusal: &Refusal) -> std::io::Result<()> {
    let mut frame = Vec::new();
    refusal.encode(&mut frame);
    io.write_all(&frame).await?;
    io.shutdown().await
}

/// Compares in constant time.
pub(super) fn is_same_secret(one: &[u8; 32], other: &[u8; 32]) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
}
