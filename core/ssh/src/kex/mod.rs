//! Key exchange (RFC 4253 sections 7 and 8): negotiation, and the resulting keys.
//!
//! May use `cipher`, `algorithms`, `host_key`, `message`, `wire` and `error`.

mod agree;
mod init;
mod keys;

use std::time::Instant;

pub(crate) use self::agree::Secret;
pub use self::agree::agree;
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::init::init_payload;
use self::init::{Chosen, ClientInit};
pub(crate) use self::keys::Secrets;
use crate::{
    cipher::{Opening, Sealing},
    error::{Error, Result},
    host_key::HostKey,
    message,
    wire::{Put, Reader},
};

/// One key exchange, from the server's KEXINIT to the client's NEWKEYS.
pub(crate) struct Exchange {
    server_init: Vec<u8>,
    client: Option<ClientInit>,
    ignores_next: bool,
    is_answered: bool,
    /// When the server's KEXINIT was sent.
    pub(crate) since: Instant,
}

/// The result of an exchange.
pub(crate) struct Done {
    /// The server's reply, as a payload.
    pub(crate) reply: Vec<u8>,
    pub(crate) sealing: Sealing,
    pub(crate) opening: Opening,
    /// The exchange hash; the first one is the session's identifier.
    pub(crate) hash: Vec<u8>,
}

impl Exchange {
    /// Starts an exchange; `cookie` is random.
    pub(crate) fn new(cookie: [u8; 16], host_keys: &[HostKey], now: Instant) -> Self {
        let server_init = init::server_init(cookie, host_keys);
        Self { server_init, client: None, ignores_next: false, is_answered: false, since: now }
    }

    /// The server's KEXINIT, as a payload.
    pub(crate) fn server_init(&self) -> &[u8] {
        &self.server_init
    }

    /// Whether the client's KEXINIT has arrived: only messages of the exchange may follow it.
    pub(crate) fn has_client_init(&self) -> bool {
        self.client.is_some()
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.is_strict)
    }

    pub(crate) fn wants_ext_info(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.wants_ext_info)
    }

    /// Handles the client's KEXINIT.
    pub(crate) fn handle_client_init(&mut self, payload: &[u8], host_keys: &[HostKey]) -> Result<()> {
        if self.client.is_some() {
            return Err(Error::Protocol("a second KEXINIT"));
        }
        let client = ClientInit::read(payload, host_keys)?;
        self.ignores_next = client.has_guessed_wrong;
        self.client = Some(client);
        Ok(())
    }

    /// Whether the client's next message is a wrong guess, which is dropped; true once.
    pub(crate) fn drops_guess(&mut self) -> bool {
        std::mem::take(&mut self.ignores_next)
    }

    /// Handles the client's public value; `None` if it was a wrong guess, and the right one follows.
    pub(crate) fn handle_client_half(
        &mut self,
        payload: &[u8],
        versions: (&[u8], &[u8]),
        host_keys: &[HostKey],
        session: Option<&[u8]>,
    ) -> Result<Done> {
        let client =
            self.client.as_ref().ok_or(Error::Protocol("a public value of the key exchange before KEXINIT"))?;
        if std::mem::replace(&mut self.is_answered, true) {
            return Err(Error::Protocol("a second public value of a key exchange"));
        }
        let mut reader = Reader::new(payload);
        reader.u8()?;
        let theirs = reader.string()?;
        reader.end()?;
        let Chosen { method, host_key, .. } = client.chosen;
        let host_key = host_keys.get(host_key).ok_or(Error::NothingInCommon("host key"))?;
        let agreed = agree::agree_as_server(method, theirs)?;
        let mut hashed = Vec::new();
        for part in [
            versions.0,
            versions.1,
            &client.payload,
            &self.server_init,
            host_key.public_blob(),
            theirs,
            &agreed.server_half,
        ] {
            hashed.put_string(part);
        }
        hashed.extend_from_slice(agreed.secret.encoded());
        let hash = method.hash(&hashed);
        let mut reply = vec![message::KEX_ECDH_REPLY];
        reply.put_string(host_key.public_blob());
        reply.put_string(&agreed.server_half);
        reply.put_string(host_key.sign(&hash)?);
        let secrets = Secrets { method, secret: &agreed.secret, hash: &hash, session: session.unwrap_or(&hash) };
        let (from_client, to_client) = (client.chosen.from_client, client.chosen.to_client);
        let opening = secrets.with_client_keys(from_client.0, from_client.1, Opening::new)?;
        let sealing = secrets.with_server_keys(to_client.0, to_client.1, Sealing::new)?;
        Ok(Done { reply, sealing, opening, hash })
    }
}
