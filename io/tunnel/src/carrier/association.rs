//! Asks the edge for an association of paths, on a carrier of any kind.

use std::{fmt, io, time::Duration};

use sallyport_wire::{
    Associate, Associated, Carrier as CarrierKind, FrameHeader, FrameType, Refusal, Violation, frame::HEADER_BYTES,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How long the edge may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The edge's refusal of an association, inside the [`io::Error`].
#[derive(Debug)]
pub struct AssociationRefused(pub Refusal);

impl fmt::Display for AssociationRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for AssociationRefused {}

/// Asks on this carrier, which must be encrypted, and whose end must be verified: the question has a credential, and
/// the answer a secret.
///
/// # Errors
/// The edge refuses, see [`AssociationRefused`], or is of a version that knows no associations.
pub async fn ask_for_association(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    question: &Associate,
) -> io::Result<Associated> {
    let answer = async {
        let mut frame = Vec::new();
        question.encode(&mut frame);
        io.write_all(&frame).await?;
        io.flush().await?;
        let mut header = [0; HEADER_BYTES];
        io.read_exact(&mut header).await?;
        let header = FrameHeader::decode(header, CarrierKind::Association).map_err(invalid)?;
        let mut payload = vec![0; header.len as usize];
        io.read_exact(&mut payload).await?;
        match header.kind {
            FrameType::Associated => Associated::decode(&payload).map_err(invalid),
            FrameType::Refused => {
                let refusal = Refusal::decode(&payload).map_err(invalid)?;
                Err(io::Error::new(io::ErrorKind::Unsupported, AssociationRefused(refusal)))
            }
            kind => Err(invalid(Violation::OutOfPlace { kind, place: "as the answer to ASSOCIATE" })),
        }
    };
    match tokio::time::timeout(ANSWER_TIME, answer).await {
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the edge did not answer in time")),
        // An edge of an older version closes a connection whose first frame it does not know.
        Ok(Err(error)) if is_end(&error) => {
            let text = "the edge's version has no tunnels over several paths: choose another transport";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
        Ok(answer) => answer,
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

fn invalid(violation: Violation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, violation)
}
