//! The messages by which a connector gets an association of paths.

use std::fmt;

use sallyport_model::TunnelId;
use serde::{Deserialize, Serialize};

use super::{Fields, MAX_CREDENTIAL_BYTES, bad, get_json, put_json};
use crate::{Violation, frame::FrameType, frame::put_frame};

/// The connector asks for an association of paths, and presents the credential of one of its tunnels.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Associate {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Its credential, at most [`MAX_CREDENTIAL_BYTES`].
    pub credential: String,
}

impl Associate {
    /// Appends the message as a whole ASSOCIATE frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_json(out, FrameType::Associate, self);
    }

    /// Reads the payload of such a frame.
    ///
    /// # Errors
    /// A field is missing or too long.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let message: Self = get_json(FrameType::Associate, payload)?;
        if message.credential.len() > MAX_CREDENTIAL_BYTES {
            let text = format!("the credential is longer than {MAX_CREDENTIAL_BYTES} bytes");
            return Err(bad(FrameType::Associate, text));
        }
        Ok(message)
    }
}

impl fmt::Debug for Associate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Associate").field("tunnel", &self.tunnel).finish_non_exhaustive()
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
