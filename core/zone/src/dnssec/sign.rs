//! Signatures over sets of records (RFC 4034 section 3).

use super::{cache::SignatureCache, key::SigningKey, keys::ZoneKeys};
use crate::record::RecordType;

/// How long a signature is valid, in seconds.
pub const SIGNATURE_LIFETIME_SECONDS: u32 = 14 * 86_400;
/// How often a set is signed anew, in seconds. So a signature that is handed out is valid for 13 days or more.
pub const SIGNATURE_RENEWAL_SECONDS: u32 = 86_400;
/// How far back a signature is dated, in seconds: clocks of validators may be late.
pub const SIGNATURE_BACKDATE_SECONDS: u32 = 3 * 3_600;

/// Records to be signed: those of one name and type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signable<'a, D> {
    /// Their name in lower case.
    pub(crate) owner: &'a [u8],
    pub(crate) rtype: RecordType,
    /// The TTL in the zone, which is signed.
    pub(crate) ttl: u32,
    /// The TTL of the signature itself.
    pub(crate) sent_ttl: u32,
    /// The data in canonical form and order.
    pub(crate) data: D,
}

/// Appends the RRSIG records of these records, with pointers to their name at `owner_at`. Returns how many: one of each
/// key.
pub(crate) fn write_signatures<'a, D: Iterator<Item = &'a [u8]> + Clone>(
    set: Signable<'_, D>,
    owner_at: u16,
    keys: &ZoneKeys,
    now: u64,
    cache: &mut SignatureCache,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> u16 {
    let mut count = 0;
    for key in keys.signers(set.rtype, now) {
        let (data_len, times) = (18 + keys.apex().as_wire().len(), times(set.owner, now));
        scratch.clear();
        signature_data(&set, key, keys.apex().as_wire(), times, scratch);
        signed_records(&set, scratch);
        let id = (cache.hash(scratch), key.tag());
        let signature = match cache.get(id) {
            Some(signature) => signature,
            None => {
                let Some(signature) = key.sign(scratch) else { continue };
                cache.record(id, signature);
                signature
            }
        };
        out.extend((0xc000 | owner_at).to_be_bytes());
        out.extend(RecordType::RRSIG.0.to_be_bytes());
        out.extend(1_u16.to_be_bytes());
        out.extend(set.sent_ttl.to_be_bytes());
        out.extend(((data_len + signature.len()) as u16).to_be_bytes());
        out.extend_from_slice(&scratch[..data_len]);
        out.extend(signature);
        count += 1;
    }
    count
}

/// Inception and expiration of a signature that is handed out now. Names have their day begin at other times, so that
/// not everything is signed at once.
fn times(owner: &[u8], now: u64) -> [u32; 2] {
    let spread = owner.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    let shift = u64::from(spread % SIGNATURE_RENEWAL_SECONDS);
    let shifted = now.saturating_add(shift);
    let begin = (shifted - shifted % u64::from(SIGNATURE_RENEWAL_SECONDS)).saturating_sub(shift) as u32;
    // Times of signatures are serial numbers: they may wrap (RFC 4034 section 3.1.5).
    [begin.wrapping_sub(SIGNATURE_BACKDATE_SECONDS), begin.wrapping_add(SIGNATURE_LIFETIME_SECONDS)]
}

//= RFC 4034 section 3.1.8.1
//# RRSIG_RDATA is the wire format of the RRSIG RDATA fields with the Signer's Name field in canonical form
//# and the Signature field excluded
fn signature_data<D>(
    set: &Signable<'_, D>,
    key: &SigningKey,
    apex: &[u8],
    [inception, expiration]: [u32; 2],
    out: &mut Vec<u8>,
) {
    out.extend(set.rtype.0.to_be_bytes());
    out.extend([key.algorithm_number(), signed_labels(set.owner)]);
    for number in [set.ttl, expiration, inception] {
        out.extend(number.to_be_bytes());
    }
    out.extend(key.tag().to_be_bytes());
    out.extend_from_slice(apex);
}

/// Number of labels without the root and a wildcard in front (RFC 4034 section 3.1.3).
fn signed_labels(owner: &[u8]) -> u8 {
    let (mut at, mut labels) = (0, 0);
    while let Some(len) = owner.get(at).filter(|len| **len != 0) {
        at += 1 + usize::from(*len);
        labels += 1;
    }
    labels - u8::from(owner.starts_with(b"\x01*"))
}

fn signed_records<'a, D: Iterator<Item = &'a [u8]> + Clone>(set: &Signable<'_, D>, out: &mut Vec<u8>) {
    for data in set.data.clone() {
        out.extend_from_slice(set.owner);
        out.extend(set.rtype.0.to_be_bytes());
        out.extend(1_u16.to_be_bytes());
        out.extend(set.ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend_from_slice(data);
    }
}
