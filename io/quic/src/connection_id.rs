//! Connection IDs that name the process and the socket which issued them, encrypted.
//!
//! An ID has 13 bytes: a nonce of 8, and 5 bytes that are masked with the nonce's encryption (as in QUIC-LB): the
//! generation of the process (2), the socket's number (1), and a checksum (2) that tells these IDs from those that
//! clients choose. An observer cannot link two IDs of one connection.
//!
//! Behind a balancer, three bytes come before these 13: a first one with the rotation of the configuration (3 bits) and
//! the length of the rest (5 bits), and the number of the server. The balancer reads the number, and knows no key.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::{
    aead::quic::{AES_128, HeaderProtectionKey},
    rand,
};
use quinn::{ConnectionId, ConnectionIdGenerator};

use crate::secret::QuicSecret;

/// Length of an ID, in bytes.
pub const ID_BYTES: usize = NONCE_BYTES + MASKED_BYTES;
const NONCE_BYTES: usize = 8;
const MASKED_BYTES: usize = 5;
/// Length of the key, and of what it encrypts, in bytes.
const BLOCK_BYTES: usize = 16;
/// The bit of a first byte that marks a long header (RFC 9000 section 17.2).
const LONG_HEADER: u8 = 0x80;
/// Where the length of the destination ID is in a long header: behind the first byte and the version.
const LONG_LENGTH_AT: usize = 5;

/// Length of what comes before, behind a balancer.
const SERVER_BYTES: usize = 3;
/// The first byte behind a balancer: rotation 0, and the length of the rest.
const SERVER_FIRST: u8 = (SERVER_BYTES + ID_BYTES - 1) as u8;

/// The number of this server, by which a balancer finds it. Control may give the number later; 0 is no number.
#[derive(Debug, Clone, Default)]
pub struct ServerNumber(Arc<AtomicU16>);

impl ServerNumber {
    /// Sets the number. Connection IDs from now on have it.
    pub fn set(&self, number: u16) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The form of the IDs of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// The 13 bytes.
    Plain,
    /// With the number of the server before them.
    Numbered,
}

impl IdForm {
    fn other(self) -> Self {
        match self {
            Self::Plain => Self::Numbered,
            Self::Numbered => Self::Plain,
        }
    }

    /// The bytes before the 13.
    fn skipped(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Numbered => SERVER_BYTES,
        }
    }

    /// The 13 bytes of the destination ID of a datagram, if the ID has the length of this form.
    pub(crate) fn destination(self, datagram: &[u8]) -> Option<&[u8; ID_BYTES]> {
        let (first, rest) = datagram.split_first()?;
        if first & LONG_HEADER == 0 {
            return rest.get(self.skipped()..)?.first_chunk();
        }
        let length = datagram.get(LONG_LENGTH_AT)?;
        let rest = datagram.get(LONG_LENGTH_AT + 1..)?;
        if usize::from(*length) == self.skipped() + ID_BYTES { rest.get(self.skipped()..)?.first_chunk() } else { None }
    }
}

/// Where the connection of an ID lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The process: each process that takes the port over has the next number.
    pub(crate) generation: u16,
    /// The socket's number.
    pub(crate) socket: u8,
}

/// Encrypts and decrypts IDs.
pub(crate) struct IdKey(HeaderProtectionKey);

impl IdKey {
    pub(crate) fn new(secret: &QuicSecret) -> io::Result<Self> {
        let key = secret.derived(b"connection ids");
        let key = key.as_ref().get(..BLOCK_BYTES).unwrap_or_default();
        HeaderProtectionKey::new(&AES_128, key).map(Self).map_err(|_| io::Error::other("a key has a wrong length"))
    }

    fn mask(&self, nonce: [u8; NONCE_BYTES]) -> [u8; MASKED_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block.iter_mut().zip(nonce.iter().cycle()).for_each(|(byte, from)| *byte = *from);
        self.0.new_mask(&block).unwrap_or_default()
    }

    pub(crate) fn encode(&self, place: Place, nonce: [u8; NONCE_BYTES]) -> ConnectionId {
        let plain = plain(place);
        let mask = self.mask(nonce);
        let mut id = [0; ID_BYTES];
        let masked = plain.iter().zip(mask).map(|(byte, mask)| byte ^ mask);
        id.iter_mut().zip(nonce.into_iter().chain(masked)).for_each(|(byte, from)| *byte = from);
        ConnectionId::new(&id)
    }

    /// The place in the destination ID of a datagram. A former process may have issued IDs of the other form.
    pub(crate) fn place(&self, form: IdForm, datagram: &[u8]) -> Option<Place> {
        let of = |form: IdForm| form.destination(datagram).and_then(|id| self.decode(id));
        of(form).or_else(|| of(form.other()))
    }

    /// The place in an ID; `None` for an ID that this key has not made.
    pub(crate) fn decode(&self, id: &[u8; ID_BYTES]) -> Option<Place> {
        let (nonce, masked) = id.split_first_chunk::<NONCE_BYTES>()?;
        let mask = self.mask(*nonce);
        let mut plain_bytes = [0; MASKED_BYTES];
        plain_bytes.iter_mut().zip(masked.iter().zip(mask)).for_each(|(byte, (from, mask))| *byte = from ^ mask);
        let [high, low, socket, ..] = plain_bytes;
        let place = Place { generation: u16::from_be_bytes([high, low]), socket };
        (plain(place) == plain_bytes).then_some(place)
    }
}

/// The bytes of a place, with their checksum. The checksum needs no strength: the mask hides it.
fn plain(place: Place) -> [u8; MASKED_BYTES] {
    let [high, low] = place.generation.to_be_bytes();
    [high, low, place.socket, !(high ^ place.socket), !low]
}

/// Issues the IDs of one socket.
pub(crate) struct Generator {
    pub(crate) key: Arc<IdKey>,
    pub(crate) place: Place,
    /// The number of the server, behind a balancer.
    pub(crate) server: Option<ServerNumber>,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut nonce = [0; NONCE_BYTES];
        // Without randomness the ID may repeat an earlier one: quinn then asks for another.
        if rand::fill(&mut nonce).is_err() {
            tracing::warn!("the system gives no randomness for a connection ID");
        }
        let id = self.key.encode(self.place, nonce);
        let Some(server) = &self.server else { return id };
        let [high, low] = server.get().to_be_bytes();
        let mut numbered = [0; SERVER_BYTES + ID_BYTES];
        let bytes = [SERVER_FIRST, high, low].into_iter().chain(id.iter().copied());
        numbered.iter_mut().zip(bytes).for_each(|(byte, from)| *byte = from);
        ConnectionId::new(&numbered)
    }

    fn cid_len(&self) -> usize {
        self.server.as_ref().map_or(0, |_| SERVER_BYTES) + ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: u8) -> IdKey {
        IdKey::new(&QuicSecret::from([secret; 32])).unwrap()
    }

    fn bytes(id: ConnectionId) -> [u8; ID_BYTES] {
        id[..].try_into().unwrap()
    }

    #[test]
    fn an_id_names_its_place_to_those_with_the_key_alone() {
        let key_1 = key(1);
        for place in [Place { generation: 0, socket: 0 }, Place { generation: 65_535, socket: 63 }] {
            let id = bytes(key_1.encode(place, *b"nonce..1"));
            assert_eq!(key_1.decode(&id), Some(place));
            assert_ne!(key(2).decode(&id), Some(place));
            let other = bytes(key_1.encode(place, *b"nonce..2"));
            assert_ne!(id[NONCE_BYTES..], other[NONCE_BYTES..], "the same place looks different each time");
        }
    }

    #[test]
    fn ids_that_others_chose_are_rarely_taken_for_ours() {
        let key = key(3);
        let taken = (0..10_000_u32).filter(|number| {
            let mut id = [0x5a; ID_BYTES];
            id[..4].copy_from_slice(&number.to_be_bytes());
            key.decode(&id).is_some()
        });
        assert!(taken.count() < 5, "1 of 65,536 is expected");
    }

    #[test]
    fn the_destination_id_is_found_in_both_kinds_of_headers() {
        let id = [7; ID_BYTES];
        let short = [&[0x40][..], &id, b"payload"].concat();
        let long = [&[0xc0, 0, 0, 0, 1, ID_BYTES as u8][..], &id, &[0]].concat();
        let chosen_by_client = [&[0xc0, 0, 0, 0, 1, 8][..], &id, &[0]].concat();
        let plain = IdForm::Plain;
        assert_eq!((plain.destination(&short), plain.destination(&long)), (Some(&id), Some(&id)));
        assert_eq!(plain.destination(&chosen_by_client), None);
        for cut in [&short[..ID_BYTES], &long[..ID_BYTES], &long[..5], &[][..]] {
            assert_eq!(plain.destination(cut), None, "{cut:?}");
        }
    }

    #[test]
    fn behind_a_balancer_an_id_begins_with_the_number_of_the_server() {
        let (key, place) = (Arc::new(key(1)), Place { generation: 3, socket: 5 });
        let server = ServerNumber::default();
        let mut numbered = Generator { key: key.clone(), place, server: Some(server.clone()) };
        server.set(0x1234);
        let id = numbered.generate_cid();
        assert_eq!((id.len(), numbered.cid_len()), (16, 16));
        assert_eq!(id[..3], [15, 0x12, 0x34], "rotation 0, and 15 more bytes");
        let short = [&[0x40][..], &id, b"payload"].concat();
        let long = [&[0xc0, 0, 0, 0, 1, 16][..], &id, &[0]].concat();
        let plain = Generator { key: key.clone(), place, server: None }.generate_cid();
        let plain = [&[0x40][..], &plain, b"payload"].concat();
        for form in [IdForm::Plain, IdForm::Numbered] {
            for datagram in [&short, &long, &plain] {
                assert_eq!(key.place(form, datagram), Some(place), "{form:?} {datagram:?}");
            }
        }
        assert_eq!(key.place(IdForm::Numbered, &short[..16]), None);
    }
}
