//! DNSSEC: keys and their rollover, signatures made when a query comes, and their cache.
//!
//! AWS-LC draws the nonces of ECDSA itself. Times are arguments: seconds since 1970, because signatures have them.
//!
//! May use: `name`, `record`.

mod cache;
mod key;
mod keys;
mod nsec;
mod rollover;
mod sign;

pub use cache::{DEFAULT_CACHED_SIGNATURES, SignatureCache};
pub use key::{Algorithm, KeyError, KeyRole, KeyTimes, SigningKey};
pub use keys::{MAX_KEYS, ZoneKeys, ZoneKeysError};
pub(crate) use nsec::nsec_data;
pub use rollover::{PlannedRollover, plan_csk_rollover, plan_ksk_rollover, plan_zsk_rollover};
pub use sign::{SIGNATURE_BACKDATE_SECONDS, SIGNATURE_LIFETIME_SECONDS, SIGNATURE_RENEWAL_SECONDS};
pub(crate) use sign::{Signable, write_signatures};
