//! The connector's first frame on a packet carrier, and the edge's answer.

use std::{fmt, io, time::Duration};

use sallyport_wire::{
    Carrier as CarrierKind, FrameHeader, FrameType, JoinNetwork, NetworkJoined, Refusal, Violation, frame::HEADER_BYTES,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How long the edge may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The edge's refusal of a machine, inside the [`io::Error`].
#[derive(Debug)]
pub struct NetworkRefused(pub Refusal);

impl fmt::Display for NetworkRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for NetworkRefused {}

/// Joins a network on this carrier, which must be encrypted, and whose end must be verified: the question has a
/// credential. Returns the place of the machine; then [`super::carry_packets`] takes the carrier.
///
/// # Errors
/// The edge refuses, see [`NetworkRefused`], or is of a version that knows no networks.
pub async fn join_network(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    question: &JoinNetwork,
) -> io::Result<NetworkJoined> {
    let answer = async {
        let mut frame = Vec::new();
        question.encode(&mut frame);
        io.write_all(&frame).await?;
        io.flush().await?;
        let mut header = [0; HEADER_BYTES];
        io.read_exact(&mut header).await?;
        let header = FrameHeader::decode(header, CarrierKind::Packets).map_err(invalid)?;
        let mut payload = vec![0; header.len as usize];
        io.read_exact(&mut payload).await?;
        match header.kind {
            FrameType::NetworkJoined => NetworkJoined::decode(&payload).map_err(invalid),
            FrameType::Refused => {
                let refusal = Refusal::decode(&payload).map_err(invalid)?;
                Err(io::Error::new(io::ErrorKind::PermissionDenied, NetworkRefused(refusal)))
            }
            kind => Err(invalid(Violation::OutOfPlace { kind, place: "as the answer to JOIN_NETWORK" })),
        }
    };
    match tokio::time::timeout(ANSWER_TIME, answer).await {
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the edge did not answer in time")),
        // An edge of an older version closes a connection whose first frame it does not know.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let text = "the edge closed the connection: its version may have no networks";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
        }
        Ok(answer) => answer,
    }
}

fn invalid(violation: Violation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, violation)
}
