//! A client for tests and fuzzers: exchanges keys, and then sends arbitrary payloads.

use std::time::{Duration, Instant};

use aws_lc_rs::{
    agreement::{Algorithm as Curve, ECDH_P256, ECDH_P384, ECDH_P521, EphemeralPrivateKey, X25519},
    kem::{Ciphertext, DecapsulationKey, ML_KEM_768},
    rand::SystemRandom,
    signature::Ed25519KeyPair,
};

use crate::{
    Config, HostKey, Server,
    algorithms::Method,
    algorithms::{CIPHERS, KEY_EXCHANGES, MACS, choose},
    cipher::{Opening, Sealing},
    error::{Error, Result},
    kex::{Secret, Secrets, agree, init_payload},
    message,
    packet::{Opener, Sealer},
    wire::{Put, Reader},
};

/// The length of ML-KEM-768's ciphertext, in bytes.
const CIPHERTEXT_BYTES: usize = 1_088;
const CLIENT_VERSION: &str = "SSH-2.0-test";

/// The client's lists for KEXINIT.
#[derive(Debug, Clone)]
pub struct Options {
    /// Key exchanges, with announcements; the first one is used.
    pub exchanges: String,
    /// Host keys.
    pub host_keys: String,
    /// One cipher.
    pub cipher: String,
    /// One MAC.
    pub mac: String,
    /// Whether a wrong guess follows KEXINIT.
    pub guesses_wrong: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            exchanges: "curve25519-sha256,ext-info-c,kex-strict-c-v00@openssh.com".to_owned(),
            host_keys: "ssh-ed25519".to_owned(),
            cipher: "chacha20-poly1305@openssh.com".to_owned(),
            mac: "hmac-sha2-256-etm@openssh.com".to_owned(),
            guesses_wrong: false,
        }
    }
}

/// A configuration with a fixed host key and a hint; a login is refused eight times.
///
/// # Panics
/// Never: the key is valid.
#[expect(clippy::unwrap_used, reason = "the key is one")]
pub fn config() -> Config {
    let key = crate::proof::ed25519_from_seed(&[7; 32]).unwrap();
    Config {
        version: "SSH-2.0-Sallyport".to_owned(),
        host_keys: vec![HostKey::new(&key).unwrap()],
        banner: Some("a test".to_owned()),
        is_interactive: true,
        max_refusals: 8,
        keepalive: Duration::from_secs(15),
        keepalive_missed: 3,
        rekey_bytes: crate::MAX_REKEY_BYTES,
        rekey_time: crate::REKEY_TIME,
    }
}

/// Fills with constant bytes.
pub fn not_random(bytes: &mut [u8]) {
    bytes.fill(7);
}

/// The client's end of a connection.
pub struct Client {
    options: Options,
    sealer: Sealer,
    opener: Opener,
    /// Output of the server that the client has not opened.
    inbox: Vec<u8>,
    server_version: Option<Vec<u8>>,
    session: Option<Vec<u8>>,
}

impl Client {
    /// A client that has sent nothing.
    pub fn new(options: Options) -> Self {
        let (sealer, opener) = (Sealer::new(), Opener::new());
        Self { options, sealer, opener, inbox: Vec::new(), server_version: None, session: None }
    }

    /// A client after its key exchange.
    ///
    /// # Errors
    /// The server ended the connection.
    pub fn connected(server: &mut Server, options: Options, now: Instant) -> Result<Self> {
        let mut client = Self::new(options);
        give(server, &client.version_line(), now)?;
        client.exchange(server, now)?;
        Ok(client)
    }

    /// A client that is logged in without a credential, if the driver allows that.
    ///
    /// # Errors
    /// The server ended the connection.
    pub fn logged_in(server: &mut Server, now: Instant) -> Result<Self> {
        let mut client = Self::connected(server, Options::default(), now)?;
        client.send(server, &service_request(), now)?;
        client.send(server, &login("ann", "none", &[]), now)?;
        while server.poll_event().is_some() {}
        server.answer_login(crate::Answer::Accept);
        client.receive(server)?;
        Ok(client)
    }

    /// The client's version line.
    pub fn version_line(&self) -> Vec<u8> {
        format!("{CLIENT_VERSION}\r\n").into_bytes()
    }

    /// The client's KEXINIT, as a payload.
    pub fn kexinit(&self) -> Vec<u8> {
        let Options { exchanges, host_keys, cipher, mac, guesses_wrong } = &self.options;
        init_payload([3; 16], [exchanges, host_keys, cipher, cipher, mac, mac], *guesses_wrong)
    }

    /// The session's identifier.
    pub fn session(&self) -> &[u8] {
        self.session.as_deref().unwrap_or_default()
    }

    /// A packet with this payload.
    pub fn seal(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        // Fails only if a cipher fails; then the packet is empty, and the server waits for more.
        let _ = self.sealer.seal(&mut packet, payload.len(), |out| out.extend_from_slice(payload));
        packet
    }

    /// Sends a packet with this payload to the server.
    ///
    /// # Errors
    /// The server ended the connection.
    pub fn send(&mut self, server: &mut Server, payload: &[u8], now: Instant) -> Result<()> {
        let packet = self.seal(payload);
        give(server, &packet, now)
    }

    /// Opens the payloads that the server has written.
    ///
    /// # Errors
    /// They are no valid packets.
    pub fn receive(&mut self, server: &mut Server) -> Result<Vec<Vec<u8>>> {
        self.take_output(server)?;
        let mut payloads = Vec::new();
        while let Some(payload) = self.next_payload()? {
            payloads.push(payload);
        }
        Ok(payloads)
    }

    fn take_output(&mut self, server: &mut Server) -> Result<()> {
        let mut written = Vec::new();
        server.swap_output(&mut written);
        self.inbox.extend(written);
        if self.server_version.is_none() {
            let end = self.inbox.iter().position(|byte| *byte == b'\n').ok_or(Error::NoClient)?;
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            self.server_version = Some(line.trim_ascii_end().to_vec());
        }
        Ok(())
    }

    fn next_payload(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(size) = self.opener.size(&self.inbox)?.filter(|size| *size <= self.inbox.len()) else {
            return Ok(None);
        };
        let mut packet: Vec<u8> = self.inbox.drain(..size).collect();
        self.opener.open(&mut packet).map(|payload| Some(payload.to_vec()))
    }

    /// The next payload with this number; earlier ones are skipped.
    fn wait_for(&mut self, number: u8) -> Result<Vec<u8>> {
        while let Some(payload) = self.next_payload()? {
            if payload.first() == Some(&number) {
                return Ok(payload);
            }
        }
        Err(Error::KeyExchange("the server did not answer"))
    }

    /// Sends KEXINIT and the public value, and nothing more.
    ///
    /// # Errors
    /// The server ended the connection.
    pub fn send_half(&mut self, server: &mut Server, now: Instant) -> Result<()> {
        let init = self.kexinit();
        self.send(server, &init, now)?;
        let half = Half::new(choose(&self.options.exchanges, &KEY_EXCHANGES, "key exchange")?)?;
        let mut payload = vec![message::KEX_ECDH_INIT];
        payload.put_string(&half.public);
        self.send(server, &payload, now)
    }

    /// Exchanges keys, for the first time or again.
    ///
    /// # Errors
    /// The server ended the connection.
    pub fn exchange(&mut self, server: &mut Server, now: Instant) -> Result<()> {
        let client_init = self.kexinit();
        self.send(server, &client_init, now)?;
        if self.options.guesses_wrong {
            self.send(server, &[message::KEX_ECDH_INIT, 0, 0, 0, 1, 9], now)?;
        }
        self.take_output(server)?;
        let server_init = self.wait_for(message::KEXINIT)?;
        let method = choose(&self.options.exchanges, &KEY_EXCHANGES, "key exchange")?;
        let half = Half::new(method)?;
        let mut payload = vec![message::KEX_ECDH_INIT];
        payload.put_string(&half.public);
        self.send(server, &payload, now)?;
        self.take_output(server)?;
        let reply = self.wait_for(message::KEX_ECDH_REPLY)?;
        let mut reader = Reader::new(&reply);
        reader.u8()?;
        let (host_key, theirs) = (reader.string()?, reader.string()?);
        let public = half.public.clone();
        let secret = half.agree(theirs)?;
        let server_version = self.server_version.clone().unwrap_or_default();
        let mut hashed = Vec::new();
        for part in [CLIENT_VERSION.as_bytes(), &server_version, &client_init, &server_init, host_key, &public, theirs]
        {
            hashed.put_string(part);
        }
        hashed.extend_from_slice(secret.encoded());
        let hash = method.hash(&hashed);
        let session = self.session.get_or_insert_with(|| hash.clone()).clone();
        let secrets = Secrets { method, secret: &secret, hash: &hash, session: &session };
        let cipher = choose(&self.options.cipher, &CIPHERS, "cipher")?;
        let mac = choose(&self.options.mac, &MACS, "MAC")?;
        let is_strict = self.options.exchanges.contains("kex-strict-c-v00@openssh.com");
        self.wait_for(message::NEWKEYS)?;
        self.send(server, &[message::NEWKEYS], now)?;
        self.opener.set_keys(secrets.with_server_keys(cipher, mac, Opening::new)?, is_strict);
        self.sealer.set_keys(secrets.with_client_keys(cipher, mac, Sealing::new)?, is_strict);
        Ok(())
    }
}

/// Passes these bytes to the server, as a driver does.
///
/// # Errors
/// The server ended the connection.
pub fn give(server: &mut Server, bytes: &[u8], now: Instant) -> Result<()> {
    let mut input = bytes.to_vec();
    server.handle_input(&mut input, now).map(drop)
}

/// The client's side of a key agreement.
struct Half {
    public: Vec<u8>,
    curve: &'static Curve,
    key: EphemeralPrivateKey,
    quantum: Option<DecapsulationKey>,
}

impl Half {
    fn new(method: Method) -> Result<Self> {
        let curve = match method {
            Method::MlKem768X25519 | Method::X25519 => &X25519,
            Method::P256 => &ECDH_P256,
            Method::P384 => &ECDH_P384,
            Method::P521 => &ECDH_P521,
        };
        let key = EphemeralPrivateKey::generate(curve, &SystemRandom::new()).map_err(|_| Error::Cipher)?;
        let mut public = Vec::new();
        let mut quantum = None;
        if method == Method::MlKem768X25519 {
            let key = DecapsulationKey::generate(&ML_KEM_768).map_err(|_| Error::Cipher)?;
            let encapsulation = key.encapsulation_key().map_err(|_| Error::Cipher)?;
            public.extend_from_slice(encapsulation.key_bytes().map_err(|_| Error::Cipher)?.as_ref());
            quantum = Some(key);
        }
        public.extend_from_slice(key.compute_public_key().map_err(|_| Error::Cipher)?.as_ref());
        Ok(Self { public, curve, key, quantum })
    }

    fn agree(self, theirs: &[u8]) -> Result<Secret> {
        let bad = Error::KeyExchange("the server's public value is invalid");
        let Some(quantum) = self.quantum else {
            return Ok(Secret::number(&agree(self.curve, self.key, theirs).ok_or(bad)?));
        };
        let (sealed, point) = theirs.split_at_checked(CIPHERTEXT_BYTES).ok_or(bad)?;
        let first = quantum.decapsulate(Ciphertext::from(sealed)).map_err(|_| bad)?;
        let second = agree(self.curve, self.key, point).ok_or(bad)?;
        Ok(Secret::hybrid(first.as_ref(), &second))
    }
}

/// A payload with this number and these strings as fields.
pub fn payload(number: u8, strings: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![number];
    for string in strings {
        out.put_string(string);
    }
    out
}

/// A request for the login service.
pub fn service_request() -> Vec<u8> {
    payload(message::SERVICE_REQUEST, &[b"ssh-userauth"])
}

/// A login attempt, with `rest` after the method.
pub fn login(user: &str, method: &str, rest: &[u8]) -> Vec<u8> {
    let mut out = payload(message::USERAUTH_REQUEST, &[user.as_bytes(), b"ssh-connection", method.as_bytes()]);
    out.extend_from_slice(rest);
    out
}

/// A login attempt by the Ed25519 key of this seed, with its signature for this session, or without.
///
/// # Panics
/// Never: each seed is a valid key.
#[expect(clippy::unwrap_used, reason = "each seed gives a key")]
pub fn login_by_key(user: &str, seed: &[u8; 32], session: Option<&[u8]>) -> Vec<u8> {
    let key = crate::proof::ed25519_from_seed(seed).unwrap();
    let mut rest = Vec::new();
    rest.put_bool(session.is_some());
    rest.put_string("ssh-ed25519");
    rest.put_string(key.public_key().to_bytes().unwrap());
    let mut out = login(user, "publickey", &rest);
    if let Some(session) = session {
        let mut signed = Vec::new();
        signed.put_string(session);
        signed.extend_from_slice(&out);
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).unwrap();
        let mut signature = Vec::new();
        signature.put_string("ssh-ed25519");
        signature.put_string(pair.sign(&signed));
        out.put_string(signature);
    }
    out
}

/// A global request.
pub fn global_request(name: &str, wants_reply: bool, rest: &[u8]) -> Vec<u8> {
    let mut out = payload(message::GLOBAL_REQUEST, &[name.as_bytes()]);
    out.put_bool(wants_reply);
    out.extend_from_slice(rest);
    out
}

/// A message on a channel, with `rest` after the channel number.
pub fn on_channel(number: u8, channel: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![number];
    out.put_u32(channel);
    out.extend_from_slice(rest);
    out
}

/// An encoded string.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_string(bytes);
    out
}

/// Encoded numbers.
pub fn numbers(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}
