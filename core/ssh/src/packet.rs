//! The binary packet protocol (RFC 4253 section 6): lengths, padding and sequence numbers.

use crate::{
    cipher::{LENGTH_BYTES, Opening, Sealing},
    error::{Error, Result},
    limits::MAX_PACKET_BYTES,
};

/// The least padding of a packet, in bytes.
const MIN_PADDING_BYTES: usize = 4;
/// The most that packet, padding and tag add to a payload, in bytes.
const MAX_OVERHEAD_BYTES: usize = 128;

/// Seals the packets of one direction.
pub(crate) struct Sealer {
    sealing: Sealing,
    sequence: u32,
    /// Bytes sealed with these keys.
    pub(crate) bytes: u64,
    /// Packets sealed with these keys.
    pub(crate) packets: u64,
}

impl Sealer {
    pub(crate) fn new() -> Self {
        Self { sealing: Sealing::Clear, sequence: 0, bytes: 0, packets: 0 }
    }

    /// Appends a packet with the payload that `payload` writes. The padding is zeros, because a cipher hides it (as in
    /// OpenSSH).
    pub(crate) fn seal(&mut self, buffer: &mut Vec<u8>, hint: usize, payload: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = buffer.len();
        buffer.reserve(hint + MAX_OVERHEAD_BYTES);
        buffer.extend_from_slice(&[0; LENGTH_BYTES + 1]);
        payload(buffer);
        let shape = self.sealing.shape();
        let counted = buffer.len() - start - if shape.counts_length { 0 } else { LENGTH_BYTES };
        let mut padding = shape.block - counted % shape.block;
        if padding < MIN_PADDING_BYTES {
            padding += shape.block;
        }
        buffer.resize(buffer.len() + padding, 0);
        let length = u32::try_from(buffer.len() - start - LENGTH_BYTES).map_err(|_| Error::Cipher)?;
        buffer[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        buffer[start + LENGTH_BYTES] = u8::try_from(padding).map_err(|_| Error::Cipher)?;
        self.sealing.seal(self.sequence, buffer, start)?;
        self.sequence = self.sequence.wrapping_add(1);
        self.bytes += (buffer.len() - start) as u64;
        self.packets += 1;
        Ok(())
    }

    /// Changes the keys, after NEWKEYS. A strict key exchange resets the sequence number.
    pub(crate) fn set_keys(&mut self, sealing: Sealing, is_strict: bool) {
        self.sealing = sealing;
        (self.bytes, self.packets) = (0, 0);
        if is_strict {
            self.sequence = 0;
        }
    }
}

/// Opens the packets of one direction.
pub(crate) struct Opener {
    opening: Opening,
    sequence: u32,
    /// Bytes opened with these keys.
    pub(crate) bytes: u64,
    /// Packets opened with these keys.
    pub(crate) packets: u64,
    /// Bytes and packets opened with former keys.
    former: (u64, u64),
}

impl Opener {
    pub(crate) fn new() -> Self {
        Self { opening: Opening::Clear, sequence: 0, bytes: 0, packets: 0, former: (0, 0) }
    }

    /// Bytes and packets opened since the start of the connection.
    pub(crate) fn total(&self) -> (u64, u64) {
        (self.former.0 + self.bytes, self.former.1 + self.packets)
    }

    /// Whether the client's packets are not encrypted yet.
    pub(crate) fn is_clear(&self) -> bool {
        matches!(self.opening, Opening::Clear)
    }

    /// The sequence number of the next packet.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The total size of the packet at the start of `input`, once its first bytes are available.
    pub(crate) fn size(&self, input: &[u8]) -> Result<Option<usize>> {
        let Some(head) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let shape = self.opening.shape();
        let length = self.opening.length(self.sequence, *head);
        // Every packet has a padding length and the least padding.
        if !(1 + MIN_PADDING_BYTES..=MAX_PACKET_BYTES).contains(&length) {
            return Err(Error::Protocol("a packet has an invalid length"));
        }
        let counted = if shape.counts_length { LENGTH_BYTES + length } else { length };
        if counted % shape.block != 0 {
            return Err(Error::Protocol("the length of a packet is not a multiple of the block size"));
        }
        Ok(Some(LENGTH_BYTES + length + shape.tag))
    }

    /// Opens a whole packet in place; returns its payload, which is not empty.
    pub(crate) fn open<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8]> {
        let size = packet.len();
        let plain = self.opening.open(self.sequence, packet)?;
        self.sequence = self.sequence.wrapping_add(1);
        self.bytes += size as u64;
        self.packets += 1;
        let padding = usize::from(plain.first().copied().unwrap_or(0));
        let end = plain.len().checked_sub(padding).filter(|end| padding >= MIN_PADDING_BYTES && *end > 1);
        let end = end.ok_or(Error::Protocol("a packet has an invalid padding"))?;
        Ok(&plain[1..end])
    }

    /// Changes the keys, after NEWKEYS. A strict key exchange resets the sequence number.
    pub(crate) fn set_keys(&mut self, opening: Opening, is_strict: bool) {
        self.opening = opening;
        self.former = self.total();
        (self.bytes, self.packets) = (0, 0);
        if is_strict {
            self.sequence = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::{Cipher, Keys, Mac};

    fn keys(cipher: Cipher, mac: Mac) -> Keys<'static> {
        const BYTES: [u8; 64] = [7; 64];
        let (iv, key) = (&BYTES[..cipher.iv_bytes()], &BYTES[..cipher.key_bytes()]);
        Keys { cipher, mac, iv, key, mac_key: &BYTES[..mac.key_bytes()] }
    }

    fn pairs() -> Vec<(String, Sealer, Opener)> {
        let mut pairs = vec![("clear".to_owned(), Sealer::new(), Opener::new())];
        for (name, cipher) in crate::algorithms::CIPHERS {
            for (mac_name, mac) in crate::algorithms::MACS {
                let (mut sealer, mut opener) = (Sealer::new(), Opener::new());
                sealer.set_keys(Sealing::new(keys(cipher, mac)).unwrap(), true);
                opener.set_keys(Opening::new(keys(cipher, mac)).unwrap(), true);
                pairs.push((format!("{name} {mac_name}"), sealer, opener));
            }
        }
        pairs
    }

    fn opened(opener: &mut Opener, input: &mut [u8]) -> Result<Vec<u8>> {
        let size = opener.size(input)?.ok_or(Error::Protocol("a packet is not whole"))?;
        let packet = input.get_mut(..size).ok_or(Error::Protocol("a packet is not whole"))?;
        Ok(opener.open(packet)?.to_vec())
    }

    #[test]
    fn what_is_sealed_is_opened_under_every_cipher() {
        for (name, mut sealer, mut opener) in pairs() {
            for length in (1..70).chain([1_000, 32_780]) {
                let payload = vec![length as u8; length];
                let mut wire = Vec::new();
                sealer.seal(&mut wire, length, |out| out.extend_from_slice(&payload)).unwrap();
                assert_eq!(opened(&mut opener, &mut wire), Ok(payload), "{name}: {length}");
            }
            assert_eq!((sealer.packets, sealer.bytes), (opener.packets, opener.bytes), "{name}");
        }
    }

    #[test]
    fn a_changed_packet_is_not_opened() {
        for at in [0, 4, 5, 20, 40] {
            for (name, mut sealer, mut opener) in pairs().into_iter().skip(1) {
                let mut wire = Vec::new();
                sealer.seal(&mut wire, 0, |out| out.extend_from_slice(&[9; 20])).unwrap();
                let mut changed = wire.clone();
                let at = at.min(changed.len() - 1);
                changed[at] ^= 0x10;
                assert!(opened(&mut opener, &mut changed).is_err(), "{name}: byte {at}");
            }
        }
        for (name, mut sealer, mut opener) in pairs().into_iter().skip(1) {
            let mut wire = Vec::new();
            sealer.seal(&mut wire, 0, |out| out.push(1)).unwrap();
            let last = wire.len() - 1;
            wire[last] ^= 1;
            assert_eq!(opened(&mut opener, &mut wire), Err(Error::Forged), "{name}");
        }
    }

    #[test]
    fn a_packet_that_comes_twice_is_not_opened() {
        for (name, mut sealer, mut opener) in pairs().into_iter().skip(1) {
            let mut wire = Vec::new();
            sealer.seal(&mut wire, 0, |out| out.push(1)).unwrap();
            let mut again = wire.clone();
            assert_eq!(opened(&mut opener, &mut wire), Ok(vec![1]), "{name}");
            // ChaCha20 hides the length, so it decrypts to another one.
            assert!(opened(&mut opener, &mut again).is_err(), "{name}");
        }
    }

    #[test]
    fn lengths_and_paddings_have_their_bounds() {
        let opener = Opener::new();
        for (length, is_possible) in
            [(0, false), (4, false), (12, true), (13, false), (34_996, true), (35_004, false), (u32::MAX, false)]
        {
            assert_eq!(opener.size(&length.to_be_bytes()).is_ok(), is_possible, "{length}");
        }
        assert_eq!(opener.size(&[0, 0, 0]), Ok(None));
        for (padding, is_possible) in [(0, false), (3, false), (4, true), (10, true), (11, false), (255, false)] {
            let mut packet = [0; 16];
            packet[3] = 12;
            packet[4] = padding;
            assert_eq!(Opener::new().open(&mut packet).is_ok(), is_possible, "{padding}");
        }
    }
}
