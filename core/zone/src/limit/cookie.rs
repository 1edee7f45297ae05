//! DNS cookies (RFC 7873) in the form that all servers share (RFC 9018).

use std::{fmt, hash::Hasher as _, net::IpAddr};

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq as _;

/// Length of a server's cookie, in bytes.
pub const SERVER_COOKIE_BYTES: usize = 16;
/// The version and three reserved bytes.
const VERSION: [u8; 4] = [1, 0, 0, 0];
//= RFC 9018 section 4.3
//# The DNS server SHOULD allow cookies within a 1-hour period in the past and a 5-minute period into the future
const MAX_AGE_SECONDS: u32 = 3_600;
const MAX_AHEAD_SECONDS: u32 = 300;
/// A cookie this old is replaced, in seconds.
const RENEW_AFTER_SECONDS: u32 = 1_800;

/// The secrets of cookies: the current one, and the former one for as long as clients have cookies of it. All servers
/// behind one address have the same secrets.
#[derive(Clone)]
pub struct CookieSecrets {
    current: [u8; 16],
    former: Option<[u8; 16]>,
}

/// What a cookie says about its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieVerdict {
    /// The client got this cookie at its address.
    Valid,
    /// Nothing: the cookie is missing, too old, or of another server.
    Unknown,
}

impl CookieSecrets {
    /// Secrets of random bytes. The former secret is valid for cookies that clients still have.
    #[must_use]
    pub fn new(current: [u8; 16], former: Option<[u8; 16]>) -> Self {
        Self { current, former }
    }

    /// Checks a server's cookie. `now` is in seconds since 1970.
    #[must_use]
    pub fn check(&self, client: &[u8; 8], server: &[u8], address: IpAddr, now: u64) -> CookieVerdict {
        let Ok(server) = <&[u8; SERVER_COOKIE_BYTES]>::try_from(server) else { return CookieVerdict::Unknown };
        let age = (now as u32).wrapping_sub(time_of(server)) as i32;
        // Times are compared as serial numbers (RFC 9018 section 4.3).
        let is_fresh = age <= MAX_AGE_SECONDS as i32 && age >= -(MAX_AHEAD_SECONDS as i32);
        let is_ours = |secret: &[u8; 16]| {
            let hash = hash(secret, client, server.first_chunk().unwrap_or(&[0; 8]), address);
            bool::from(hash.ct_eq(&server[8..]))
        };
        let is_valid = is_fresh && (is_ours(&self.current) || self.former.as_ref().is_some_and(is_ours));
        if is_valid { CookieVerdict::Valid } else { CookieVerdict::Unknown }
    }

    /// The cookie that the answer has: the client's, if it is valid and not old, otherwise a new one.
    #[must_use]
    pub fn answer(&self, client: &[u8; 8], server: &[u8], address: IpAddr, now: u64) -> [u8; SERVER_COOKIE_BYTES] {
        if let Ok(server) = <[u8; SERVER_COOKIE_BYTES]>::try_from(server) {
            let age = (now as u32).wrapping_sub(time_of(&server));
            let is_current =
                hash(&self.current, client, server.first_chunk().unwrap_or(&[0; 8]), address) == server[8..];
            if age <= RENEW_AFTER_SECONDS && is_current {
                return server;
            }
        }
        let mut cookie = [0; SERVER_COOKIE_BYTES];
        cookie[..4].copy_from_slice(&VERSION);
        cookie[4..8].copy_from_slice(&(now as u32).to_be_bytes());
        let fixed = *cookie.first_chunk().unwrap_or(&[0; 8]);
        cookie[8..].copy_from_slice(&hash(&self.current, client, &fixed, address));
        cookie
    }
}

fn time_of(server: &[u8; SERVER_COOKIE_BYTES]) -> u32 {
    u32::from_be_bytes([server[4], server[5], server[6], server[7]])
}

//= RFC 9018 section 4.4
//# Hash = SipHash-2-4(Client Cookie | Version | Reserved | Timestamp | Client-IP, Server Secret)
fn hash(secret: &[u8; 16], client: &[u8; 8], fixed: &[u8; 8], address: IpAddr) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(client);
    hasher.write(fixed);
    match address.to_canonical() {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.finish().to_le_bytes()
}

impl fmt::Debug for CookieSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSecrets(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9018 appendix A.1.
    const SECRET: [u8; 16] =
        [0xe5, 0xe9, 0x73, 0xe5, 0xa6, 0xb2, 0xa4, 0x3f, 0x48, 0xe7, 0xdc, 0x84, 0x9e, 0x37, 0xbf, 0xcf];
    const CLIENT: [u8; 8] = [0x24, 0x64, 0xc4, 0xab, 0xcf, 0x10, 0xc9, 0x57];
    const TIME: u64 = 1_559_731_985;

    #[test]
    fn the_example_of_the_rfc() {
        let secrets = CookieSecrets::new(SECRET, None);
        let address: IpAddr = "198.51.100.100".parse().unwrap();
        let expected = [1, 0, 0, 0, 0x5c, 0xf7, 0x9f, 0x11, 0x1f, 0x81, 0x30, 0xc3, 0xee, 0xe2, 0x94, 0x80];
        let cookie = secrets.answer(&CLIENT, &[], address, TIME);
        assert_eq!(cookie, expected);
        assert_eq!(secrets.check(&CLIENT, &cookie, address, TIME + 3_600), CookieVerdict::Valid);
        assert_eq!(secrets.check(&CLIENT, &cookie, address, TIME - 300), CookieVerdict::Valid);
        assert_eq!(secrets.answer(&CLIENT, &cookie, address, TIME + 1_800), cookie);
        assert_ne!(secrets.answer(&CLIENT, &cookie, address, TIME + 1_801), cookie);
        let later = CookieSecrets::new([1; 16], Some(SECRET));
        assert_eq!(later.check(&CLIENT, &cookie, address, TIME), CookieVerdict::Valid);
        assert_ne!(later.answer(&CLIENT, &cookie, address, TIME), cookie, "a new secret, a new cookie");
    }

    #[test]
    fn cookies_of_others_are_not_valid() {
        let secrets = CookieSecrets::new(SECRET, None);
        let address: IpAddr = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let cookie = secrets.answer(&CLIENT, &[], address, TIME);
        let unknown = |client: &[u8; 8], server: &[u8], address: &str, now| {
            secrets.check(client, server, address.parse().unwrap(), now) == CookieVerdict::Unknown
        };
        let here = "2001:db8:220:1:59de:d0f4:8769:82b8";
        assert!(!unknown(&CLIENT, &cookie, here, TIME));
        assert!(unknown(&[0; 8], &cookie, here, TIME));
        assert!(unknown(&CLIENT, &cookie, "2001:db8::1", TIME));
        assert!(unknown(&CLIENT, &cookie, here, TIME + 3_601));
        assert!(unknown(&CLIENT, &cookie, here, TIME - 301));
        assert!(unknown(&CLIENT, &cookie[..15], here, TIME));
        assert!(unknown(&CLIENT, &[], here, TIME));
        let mut bad = cookie;
        bad[15] ^= 1;
        assert!(unknown(&CLIENT, &bad, here, TIME));
    }
}
