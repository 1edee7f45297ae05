//! KEXINIT (RFC 4253 section 7.1): the lists of algorithms.

use crate::{
    algorithms::{
        CIPHERS, COMPRESSIONS, EXT_INFO_CLIENT, KEY_EXCHANGES, MACS, Method, SERVER_MARKS, STRICT_CLIENT, choose, names,
    },
    cipher::{Cipher, Mac},
    error::Result,
    host_key::HostKey,
    message,
    wire::{Put, Reader},
};

/// The chosen algorithms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen {
    pub(super) method: Method,
    /// The index of the host key.
    pub(super) host_key: usize,
    pub(super) from_client: (Cipher, Mac),
    pub(super) to_client: (Cipher, Mac),
}

/// The client's KEXINIT.
pub(super) struct ClientInit {
    pub(super) payload: Vec<u8>,
    pub(super) chosen: Chosen,
    /// Whether the client's next packet is a wrong guess for other algorithms.
    pub(super) has_guessed_wrong: bool,
    pub(super) is_strict: bool,
    pub(super) wants_ext_info: bool,
}

impl ClientInit {
    pub(super) fn read(payload: &[u8], host_keys: &[HostKey]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        // The message number and the cookie.
        reader.bytes(17)?;
        let (exchanges, host_names) = (reader.text()?, reader.text()?);
        let ciphers = [reader.text()?, reader.text()?];
        let macs = [reader.text()?, reader.text()?];
        for _ in 0..2 {
            choose(reader.text()?, &COMPRESSIONS, "compression")?;
        }
        // Languages.
        for _ in 0..2 {
            reader.text()?;
        }
        let has_guessed = reader.bool()?;
        reader.u32()?;
        reader.end()?;
        let host_list: Vec<_> = host_keys.iter().enumerate().map(|(place, key)| (key.algorithm(), place)).collect();
        let chosen = Chosen {
            method: choose(exchanges, &KEY_EXCHANGES, "key exchange")?,
            host_key: choose(host_names, &host_list, "host key")?,
            from_client: cipher_and_mac(ciphers[0], macs[0])?,
            to_client: cipher_and_mac(ciphers[1], macs[1])?,
        };
        // A guess is right if the first names of both lists are the same, whatever was chosen.
        let client_first = (exchanges.split(',').next(), host_names.split(',').next());
        let server_first = (Some(KEY_EXCHANGES[0].0), host_keys.first().map(HostKey::algorithm));
        let has = |mark: &str| exchanges.split(',').any(|name| name == mark);
        Ok(Self {
            payload: payload.to_vec(),
            chosen,
            has_guessed_wrong: has_guessed && client_first != server_first,
            is_strict: has(STRICT_CLIENT),
            wants_ext_info: has(EXT_INFO_CLIENT),
        })
    }
}

/// Chooses a cipher, and a MAC if the cipher needs one.
fn cipher_and_mac(ciphers: &str, macs: &str) -> Result<(Cipher, Mac)> {
    let cipher = choose(ciphers, &CIPHERS, "cipher")?;
    let mac = if cipher.needs_mac() { choose(macs, &MACS, "MAC")? } else { Mac::Sha256 };
    Ok((cipher, mac))
}

/// The server's KEXINIT.
pub(super) fn server_init(cookie: [u8; 16], host_keys: &[HostKey]) -> Vec<u8> {
    let exchanges = format!("{},{SERVER_MARKS}", names(&KEY_EXCHANGES));
    let host_names = host_keys.iter().map(HostKey::algorithm).collect::<Vec<_>>().join(",");
    let (ciphers, macs) = (names(&CIPHERS), names(&MACS));
    init_payload(cookie, [&exchanges, &host_names, &ciphers, &ciphers, &macs, &macs], false)
}

/// A KEXINIT with these lists: key exchanges, host keys, ciphers and MACs from and to the client.
pub(crate) fn init_payload(cookie: [u8; 16], lists: [&str; 6], has_guessed: bool) -> Vec<u8> {
    let mut payload = vec![message::KEXINIT];
    payload.extend_from_slice(&cookie);
    for list in lists {
        payload.put_string(list);
    }
    let compressions = names(&COMPRESSIONS);
    for list in [&*compressions, &compressions, "", ""] {
        payload.put_string(list);
    }
    payload.put_bool(has_guessed);
    payload.put_u32(0);
    payload
}
