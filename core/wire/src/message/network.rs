//! The messages by which a machine joins a network on a packet carrier.

use std::fmt;

use ipnet::IpNet;
use sallyport_model::MachineId;
use serde::{Deserialize, Serialize};

use super::{MAX_CREDENTIAL_BYTES, bad, clean, get_json, put_json};
use crate::{Violation, frame::FrameType};

/// The most routes in NETWORK_JOINED; an edge leaves further ones out.
pub const MAX_NETWORK_ROUTES: usize = 256;
/// The most addresses in NETWORK_JOINED: one of each family.
const MAX_ADDRESSES: usize = 2;
/// The longest name, in bytes (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 63;

/// A machine joins its network, and presents its credential.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinNetwork {
    /// The machine.
    pub machine: MachineId,
    /// Its credential, at most [`MAX_CREDENTIAL_BYTES`].
    pub credential: String,
}

impl JoinNetwork {
    /// Appends the message as a whole JOIN_NETWORK frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_json(out, FrameType::JoinNetwork, self);
    }

    /// Reads the payload of such a frame.
    ///
    /// # Errors
    /// A field is missing or too long.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let message: Self = get_json(FrameType::JoinNetwork, payload)?;
        if message.credential.len() > MAX_CREDENTIAL_BYTES {
            let text = format!("the credential is longer than {MAX_CREDENTIAL_BYTES} bytes");
            return Err(bad(FrameType::JoinNetwork, text));
        }
        Ok(message)
    }
}

impl fmt::Debug for JoinNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinNetwork").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// The place of a machine in its network: the edge's first answer, sent again after each change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkJoined {
    /// The name of the network.
    pub network: String,
    /// The name of the machine.
    pub machine: String,
    /// The machine's addresses, at most one of each family, with the prefix of the network's range.
    pub addresses: Vec<IpNet>,
    /// What lies behind other machines, at most [`MAX_NETWORK_ROUTES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<IpNet>,
    /// The longest packet that is no train, in bytes.
    pub mtu_bytes: u16,
}

impl NetworkJoined {
    /// Appends the message as a whole NETWORK_JOINED frame. Routes beyond the bound are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let routes = self.routes.iter().take(MAX_NETWORK_ROUTES).copied().collect();
        put_json(out, FrameType::NetworkJoined, &Self { routes, ..self.clone() });
    }

    /// Reads the payload of such a frame.
    ///
    /// # Errors
    /// A field is missing, or a list is too long.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let message: Self = get_json(FrameType::NetworkJoined, payload)?;
        if message.addresses.len() > MAX_ADDRESSES || message.routes.len() > MAX_NETWORK_ROUTES {
            let text = format!("more than {MAX_ADDRESSES} addresses or {MAX_NETWORK_ROUTES} routes");
            return Err(bad(FrameType::NetworkJoined, text));
        }
        let name = |name: &str| clean(name, MAX_NAME_BYTES);
        Ok(Self { network: name(&message.network), machine: name(&message.machine), ..message })
    }
}
