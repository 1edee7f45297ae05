//! Whose certificates were refused: recorded a few times for each address, since anybody may try as often as they like.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use rustls::{CertificateError, Error};

use crate::lifecycle::counts::party;

/// How many refusals of one address are recorded at once, and after how long one more.
const BURST: u32 = 5;
const EVERY: Duration = Duration::from_secs(60);
/// How many addresses are remembered; beyond, refusals of others are counted and not recorded.
const MAX_PARTIES: usize = 4_096;

/// Whose refusals were recorded lately.
#[derive(Debug, Default)]
pub(crate) struct RefusedAddresses {
    /// When all of an address would be forgotten.
    until: HashMap<IpAddr, Instant>,
}

impl RefusedAddresses {
    /// Whether a refusal of this address is recorded now.
    pub(crate) fn may_be_told(&mut self, address: IpAddr, now: Instant) -> bool {
        let party = party(address);
        if self.until.len() >= MAX_PARTIES && !self.until.contains_key(&party) {
            self.until.retain(|_, until| *until > now);
            if self.until.len() >= MAX_PARTIES {
                return false;
            }
        }
        let until = self.until.get(&party).copied().filter(|until| *until > now).unwrap_or(now) + EVERY;
        let may = until <= now + EVERY * BURST;
        if may {
            self.until.insert(party, until);
        }
        may
    }
}

/// What was wrong with the certificate in a handshake that failed; `None`: it failed for something else.
pub(crate) fn refusal(error: &io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::NoCertificatesPresented => Some("no certificate was shown"),
        Error::InvalidCertificate(why) => Some(match why {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => "the certificate is not good at this time",
            CertificateError::ApplicationVerificationFailure => {
                "the certificate is for another socket, or its login or token is not good here"
            }
            _ => "the certificate is not of the organisation's authority, or not for clients",
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_recorded_a_few_times_and_the_memory_is_bounded() {
        let (mut strangers, start) = (RefusedAddresses::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let told = (0..20).filter(|_| strangers.may_be_told(one, start)).count();
        assert_eq!(told, 5);
        assert!(!strangers.may_be_told(one, start + Duration::from_secs(59)));
        assert!(strangers.may_be_told(one, start + Duration::from_secs(60)));
        assert!(strangers.may_be_told("192.0.2.2".parse().unwrap(), start), "others are others");
        let six = |last: &str| format!("2001:db8::{last}").parse().unwrap();
        assert_eq!((0..9).filter(|n| strangers.may_be_told(six(&n.to_string()), start)).count(), 5, "one network");
        for n in 0..2 * MAX_PARTIES {
            strangers.may_be_told(IpAddr::from(u32::try_from(n).unwrap().to_be_bytes()), start);
        }
        assert!(strangers.until.len() <= MAX_PARTIES);
        assert!(!strangers.may_be_told("203.0.113.1".parse().unwrap(), start));
        assert!(strangers.may_be_told("203.0.113.1".parse().unwrap(), start + EVERY * 7), "what is old makes room");
    }
}
