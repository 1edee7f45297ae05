//! The messages by which a connector gets an association of paths.

use std::fmt;

use super::Fields;
use crate::{Violation, frame::FrameType, frame::put_frame};

/// The connector asks for an association of paths. The frame has no fields yet; later versions may add some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Associate;

impl Associate {
    /// Appends the message as a whole ASSOCIATE frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_frame(out, FrameType::Associate, |_| {});
    }
}

/// The association that the edge has made for the connector.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Associated {
    /// The id of the edge's end, in packets of the connector.
    pub edge: [u8; 8],
    /// The id of the connector's end, in packets of the edge.
    pub connector: [u8; 8],
    /// The secret of the association.
    pub secret: [u8; 32],
    /// The edge's UDP port.
    pub port: u16,
}

impl Associated {
    /// Appends the message as a whole ASSOCIATED frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_frame(out, FrameType::Associated, |out| {
            out.extend_from_slice(&self.edge);
            out.extend_from_slice(&self.connector);
            out.extend_from_slice(&self.secret);
            out.extend_from_slice(&self.port.to_be_bytes());
        });
    }

    /// Reads the payload. Fields of later versions may follow.
    ///
    /// # Errors
    /// The payload is too short.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut rest = Fields { kind: FrameType::Associated, rest: payload };
        let (edge, connector, secret) = (rest.take()?, rest.take()?, rest.take()?);
        Ok(Self { edge, connector, secret, port: u16::from_be_bytes(rest.take()?) })
    }
}

impl fmt::Debug for Associated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Associated").field("port", &self.port).finish_non_exhaustive()
    }
}
