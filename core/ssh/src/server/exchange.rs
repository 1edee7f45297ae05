//! The messages of key exchanges, and their order.

use std::time::Instant;

use super::Server;
use crate::{
    algorithms::USER_SIGNATURES,
    error::{Error, Result},
    kex::Exchange,
    limits::MAX_EXCHANGES_BEFORE_LOGIN,
    message,
    wire::Put,
};

impl Server {
    /// Checks whether a message is allowed now (RFC 4253 section 7.1, PROTOCOL of OpenSSH section 1.10).
    pub(super) fn check_order(&self, number: u8) -> Result<()> {
        let Some(exchange) = &self.exchange else { return Ok(()) };
        let is_exchange = matches!(number, message::KEXINIT..=message::LAST_OF_TRANSPORT);
        let is_aside = matches!(number, message::IGNORE | message::UNIMPLEMENTED | message::DEBUG);
        // Up to the client's NEWKEYS, and not only to its public value: messages in between are in clear text, too.
        let is_first = self.opener.is_clear();
        let may_come = if is_first && exchange.is_strict() {
            is_exchange
        } else if is_first {
            is_exchange || is_aside
        } else if exchange.has_client_init() {
            // A client must not send messages of upper layers after its KEXINIT, but Paramiko opens channels there,
            // under the keys that are still valid. OpenSSH's server accepts that too.
            is_exchange || is_aside || number > message::LAST_OF_TRANSPORT
        } else {
            true
        };
        if may_come || number == message::DISCONNECT {
            Ok(())
        } else {
            Err(Error::Protocol("a message that is not allowed in a key exchange"))
        }
    }

    pub(super) fn start_exchange(&mut self, now: Instant) {
        let mut cookie = [0; 16];
        self.random.fill(&mut cookie);
        let exchange = Exchange::new(cookie, &self.config.host_keys, now);
        self.output.begin_exchange(exchange.server_init());
        self.exchange = Some(exchange);
    }

    pub(super) fn handle_kexinit(&mut self, payload: &[u8], now: Instant) -> Result<()> {
        if !self.logins.is_done() {
            self.exchanges_before_login += 1;
            if self.exchanges_before_login > MAX_EXCHANGES_BEFORE_LOGIN {
                return Err(Error::TooMuchBeforeLogin);
            }
        }
        if self.exchange.is_none() {
            self.start_exchange(now);
        }
        let Some(exchange) = &mut self.exchange else { return Ok(()) };
        exchange.handle_client_init(payload, &self.config.host_keys)?;
        if self.session.is_none() {
            self.is_strict = exchange.is_strict();
            // The sequence number is already that of the next packet.
            if self.is_strict && self.opener.sequence() != 1 {
                return Err(Error::Protocol("KEXINIT is not the first packet of a strict key exchange"));
            }
        }
        Ok(())
    }

    pub(super) fn handle_client_half(&mut self, payload: &[u8]) -> Result<()> {
        let exchange =
            self.exchange.as_mut().ok_or(Error::Protocol("a public value of the key exchange before KEXINIT"))?;
        let client_version = self.client_version.as_deref().unwrap_or_default();
        let versions = (client_version, self.config.version.as_bytes());
        let done = exchange.handle_client_half(payload, versions, &self.config.host_keys, self.session.as_deref())?;
        let tells_extensions = self.session.is_none() && exchange.wants_ext_info();
        self.session.get_or_insert(done.hash);
        self.next_opening = Some(done.opening);
        self.output.send_at_once(done.reply.len(), |out| out.extend_from_slice(&done.reply));
        self.output.send_at_once(0, |out| out.push(message::NEWKEYS));
        self.output.set_keys(done.sealing, self.is_strict);
        if tells_extensions {
            // Directly after the first NEWKEYS (RFC 8308 section 2.4).
            self.output.send_at_once(0, |out| {
                out.push(message::EXT_INFO);
                out.put_u32(1);
                out.put_string("server-sig-algs");
                out.put_string(USER_SIGNATURES);
            });
        }
        self.output.end_exchange();
        Ok(())
    }

    pub(super) fn handle_newkeys(&mut self, now: Instant) -> Result<()> {
        let opening = self.next_opening.take().ok_or(Error::Protocol("NEWKEYS without keys"))?;
        self.opener.set_keys(opening, self.is_strict);
        self.exchange = None;
        self.keys_since = now;
        Ok(())
    }
}
