//! One connection of a client.
//!
//! May use `cipher`, `kex` and every file of this crate.

mod channels;
mod exchange;
mod forwards;
mod login;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::channels::{Read, Written};
use self::{channels::Channels, forwards::Forwards, login::Logins};
use crate::{
    cipher::Opening,
    error::{BY_APPLICATION, Error, Result},
    event::Event,
    host_key::HostKey,
    kex::Exchange,
    limits::{
        EXCHANGE_TIME, MAX_ANSWER_BYTES, MAX_BYTES_BEFORE_LOGIN, MAX_PACKETS_BEFORE_LOGIN, MAX_REKEY_BYTES,
        MAX_REKEY_PACKETS, MAX_VERSION_BYTES, REKEY_TIME,
    },
    message,
    output::Output,
    packet::Opener,
    wire::{Put, Reader},
};

/// The configuration that all connections of a server share.
#[derive(Debug)]
pub struct Config {
    /// The version line without its line end: `SSH-2.0-` and a name.
    pub version: String,
    /// The server's host keys, one of each kind, the preferred one first.
    pub host_keys: Vec<HostKey>,
    /// Banner that clients display before the login.
    pub banner: Option<String>,
    /// Whether keyboard-interactive is offered.
    pub is_interactive: bool,
    /// Refusals after which the connection is closed; the initial query of the methods counts.
    pub max_refusals: usize,
    /// Time of silence after which a logged-in client is probed.
    pub keepalive: Duration,
    /// Unanswered probes after which the client is disconnected.
    pub keepalive_missed: usize,
    /// Bytes in one direction after which keys are exchanged again, at most [`MAX_REKEY_BYTES`].
    pub rekey_bytes: u64,
    /// Time after which keys are exchanged again, at most [`REKEY_TIME`].
    pub rekey_time: Duration,
}

/// A source of random bytes.
pub trait Random: Send {
    /// Fills these bytes with random ones.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8]) + Send> Random for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// One connection. The [crate's page](crate) shows how to drive it.
pub struct Server {
    config: Arc<Config>,
    random: Box<dyn Random>,
    output: Output,
    opener: Opener,
    client_version: Option<Vec<u8>>,
    exchange: Option<Exchange>,
    /// The client's next keys, until its NEWKEYS.
    next_opening: Option<Opening>,
    session: Option<Vec<u8>>,
    is_strict: bool,
    exchanges_before_login: usize,
    keys_since: Instant,
    /// The latest known time.
    now: Instant,
    logins: Logins,
    forwards: Forwards,
    channels: Channels,
    events: VecDeque<Event>,
    /// Number of unanswered probes.
    missed: usize,
    ask_at: Instant,
    is_over: bool,
}

impl Server {
    /// A new connection; its output starts with the version.
    pub fn new(config: Arc<Config>, random: impl Random + 'static, now: Instant) -> Self {
        let mut output = Output::new();
        output.put_line(&config.version);
        Self {
            ask_at: now + config.keepalive,
            config,
            random: Box::new(random),
            output,
            opener: Opener::new(),
            client_version: None,
            exchange: None,
            next_opening: None,
            session: None,
            is_strict: false,
            exchanges_before_login: 0,
            keys_since: now,
            now,
            logins: Logins::default(),
            forwards: Forwards::default(),
            channels: Channels::default(),
            events: VecDeque::new(),
            missed: 0,
            is_over: false,
        }
    }

    /// Handles received bytes from the start of `input`, decrypting in place; returns the number of consumed bytes.
    /// Pass the rest again with later bytes, or when [`wants_input`](Self::wants_input) is true again.
    ///
    /// # Errors
    /// The connection is over. The remaining output has the reason for the client.
    pub fn handle_input(&mut self, input: &mut [u8], now: Instant) -> Result<usize> {
        if self.is_over {
            return Ok(input.len());
        }
        self.missed = 0;
        self.now = now;
        self.ask_at = now + self.config.keepalive;
        let result = self.consume(input, now).and_then(|count| self.output.check().map(|()| count));
        result.inspect_err(|error| self.fail(*error))
    }

    /// The next event; call until `None`, after each input and each deadline.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether input is handled now: not during a login decision, nor with too much output.
    pub fn wants_input(&self) -> bool {
        self.is_over || !self.logins.is_asking() && self.forwards.has_room() && self.output.len() <= MAX_ANSWER_BYTES
    }

    /// Whether the connection is over: the remaining output is the last.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Number of unwritten bytes.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Swaps the output into a buffer that has been written, which is cleared.
    pub fn swap_output(&mut self, written: &mut Vec<u8>) {
        self.output.swap(written);
    }

    /// Frees memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.output.shrink();
        self.events.shrink_to_fit();
    }

    /// When to call [`handle_deadline`](Self::handle_deadline), unless something happens before.
    pub fn deadline(&self) -> Instant {
        self.ask_at
    }

    /// Probes a silent client, and renews old keys.
    ///
    /// # Errors
    /// The client is unresponsive: the connection is over.
    pub fn handle_deadline(&mut self, now: Instant) -> Result<()> {
        if self.is_over || now < self.ask_at {
            return Ok(());
        }
        self.now = now;
        self.ask_at = now + self.config.keepalive;
        if !self.logins.is_done() {
            return Ok(());
        }
        if self.missed >= self.config.keepalive_missed {
            self.fail(Error::Silent);
            return Err(Error::Silent);
        }
        self.missed += 1;
        self.forwards.ask(&mut self.output, None);
        let result = self.renew_keys(now).and_then(|()| self.output.check());
        result.inspect_err(|error| self.fail(*error))
    }

    /// Ends the connection with this message. Further input is ignored.
    pub fn disconnect(&mut self, text: &str) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.send_disconnect(BY_APPLICATION, text);
        }
    }

    /// Sends a line for the client's debug log.
    pub fn debug(&mut self, text: &str) {
        self.output.send(|out| {
            out.push(message::DEBUG);
            out.put_bool(true);
            out.put_string(text);
            out.put_string("en");
        });
    }

    fn fail(&mut self, error: Error) {
        if !std::mem::replace(&mut self.is_over, true)
            && let Some(reason) = error.disconnect_reason()
        {
            self.send_disconnect(reason, &error.to_string());
        }
    }

    fn send_disconnect(&mut self, reason: u32, text: &str) {
        self.output.send_at_once(text.len(), |out| {
            out.push(message::DISCONNECT);
            out.put_u32(reason);
            out.put_string(text);
            out.put_string("en");
        });
    }

    fn consume(&mut self, input: &mut [u8], now: Instant) -> Result<usize> {
        let mut at = 0;
        if self.client_version.is_none() {
            let Some((version, size)) = read_version(input)? else { return Ok(0) };
            self.client_version = Some(version);
            self.start_exchange(now);
            at = size;
        }
        while self.wants_input() {
            let Some(size) = self.opener.size(&input[at..])? else { break };
            let Some(packet) = input.get_mut(at..at + size) else { break };
            at += size;
            let payload = self.opener.open(packet)?;
            self.handle_packet(payload, now)?;
        }
        let (bytes, packets) = self.opener.total();
        let is_much = bytes > MAX_BYTES_BEFORE_LOGIN || packets > MAX_PACKETS_BEFORE_LOGIN;
        if is_much && !self.logins.is_done() {
            return Err(Error::TooMuchBeforeLogin);
        }
        self.renew_keys(now)?;
        Ok(at)
    }

    fn handle_packet(&mut self, payload: &[u8], now: Instant) -> Result<()> {
        let mut reader = Reader::new(payload);
        let number = reader.u8()?;
        self.check_order(number)?;
        match number {
            message::DISCONNECT => {
                let reason = reader.u32()?;
                Err(Error::Left { reason })
            }
            message::IGNORE | message::UNIMPLEMENTED | message::DEBUG => Ok(()),
            message::KEXINIT => self.handle_kexinit(payload, now),
            message::NEWKEYS => self.handle_newkeys(now),
            message::KEX_ECDH_INIT..=message::LAST_OF_TRANSPORT
                if self.exchange.as_mut().is_some_and(Exchange::drops_guess) =>
            {
                Ok(())
            }
            message::KEX_ECDH_INIT => self.handle_client_half(payload),
            _ if self.opener.is_clear() => Err(Error::Protocol("a message before the first keys")),
            message::SERVICE_REQUEST => self.handle_service_request(reader),
            message::USERAUTH_REQUEST => self.handle_login(payload),
            message::USERAUTH_INFO_RESPONSE => self.handle_info_response(),
            // The client's extensions are not used.
            message::EXT_INFO => Ok(()),
            message::GLOBAL_REQUEST..=u8::MAX if !self.logins.is_done() => {
                Err(Error::Protocol("a message before the login"))
            }
            message::GLOBAL_REQUEST => self.handle_global_request(reader),
            message::REQUEST_SUCCESS | message::REQUEST_FAILURE => {
                self.handle_global_answer();
                Ok(())
            }
            message::CHANNEL_OPEN => self.handle_open(reader),
            message::CHANNEL_OPEN_CONFIRMATION..=message::CHANNEL_FAILURE => self.handle_channel(number, reader),
            _ => {
                self.send_unimplemented();
                Ok(())
            }
        }
    }

    /// RFC 4253 section 11.4.
    fn send_unimplemented(&mut self) {
        let sequence = self.opener.sequence().wrapping_sub(1);
        self.output.send(|out| {
            out.push(message::UNIMPLEMENTED);
            out.put_u32(sequence);
        });
    }

    /// Renews keys that have protected much data, or are old.
    fn renew_keys(&mut self, now: Instant) -> Result<()> {
        if let Some(exchange) = &self.exchange {
            let is_late = now.saturating_duration_since(exchange.since) > EXCHANGE_TIME;
            return if is_late { Err(Error::KeyExchange("the client takes too long")) } else { Ok(()) };
        }
        let bytes = self.config.rekey_bytes.min(MAX_REKEY_BYTES);
        let (sealed_bytes, sealed_packets) = self.output.used();
        let is_due = self.opener.bytes.max(sealed_bytes) > bytes
            || self.opener.packets.max(sealed_packets) > MAX_REKEY_PACKETS
            || now.saturating_duration_since(self.keys_since) > self.config.rekey_time.min(REKEY_TIME);
        if is_due && self.logins.is_done() && !self.is_over {
            self.start_exchange(now);
        }
        Ok(())
    }
}

/// The client's version line (RFC 4253 section 4.2) without its line end, and its length with it.
fn read_version(input: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let line = input.get(..MAX_VERSION_BYTES).unwrap_or(input);
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        let is_possible = input.len() < MAX_VERSION_BYTES && starts_like_a_version(line);
        return if is_possible { Ok(None) } else { Err(Error::NoClient) };
    };
    let version = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
    let is_client = version.starts_with(b"SSH-2.0-") && !version.contains(&0);
    if is_client { Ok(Some((version.to_vec(), end + 1))) } else { Err(Error::NoClient) }
}

fn starts_like_a_version(line: &[u8]) -> bool {
    line.iter().zip(b"SSH-2.0-").all(|(byte, expected)| byte == expected)
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}
