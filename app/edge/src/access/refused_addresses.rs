//! Limits the records of refused client certificates for each address, because clients may try as often as they like.

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
/// How many addresses are remembered. Refusals of further addresses are counted, but not recorded.
const MAX_PARTIES: usize = 4_096;

/// The addresses with lately recorded refusals (GCRA: one time for each address).
#[derive(Debug, Default)]
pub(crate) struct RefusedAddresses {
    /// When the full burst of an address is available again.
    until: HashMap<IpAddr, Instant>,
}

impl RefusedAddresses {
    /// Whether a refusal of this address is recorded now.
    pub(crate) fn may_record(&mut self, address: IpAddr, now: Instant) -> bool {
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

/// What was wrong with the certificate in a failed handshake; `None` if the handshake failed for another reason.
pub(crate) fn refusal(error: &io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::NoCertificatesPresented => Some("no certificate was presented"),
        Error::InvalidCertificate(why) => Some(match why {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => "the certificate is expired or not yet valid",
            CertificateError::ApplicationVerificationFailure => {
                "the certificate is for another socket, or its login or token is not valid here"
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
        let (mut addresses, start) = (RefusedAddresses::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let recorded = (0..20).filter(|_| addresses.may_record(one, start)).count();
        assert_eq!(recorded, 5);
        assert!(!addresses.may_record(one, start + Duration::from_secs(59)));
        assert!(addresses.may_record(one, start + Duration::from_secs(60)));
        assert!(addresses.may_record("192.0.2.2".parse().unwrap(), start), "each address has its own limit");
        let six = |last: &str| format!("2001:db8::{last}").parse().unwrap();
        assert_eq!((0..9).filter(|n| addresses.may_record(six(&n.to_string()), start)).count(), 5, "one network");
        for n in 0..2 * MAX_PARTIES {
            addresses.may_record(IpAddr::from(u32::try_from(n).unwrap().to_be_bytes()), start);
        }
        assert!(addresses.until.len() <= MAX_PARTIES);
        assert!(!addresses.may_record("203.0.113.1".parse().unwrap(), start));
        assert!(addresses.may_record("203.0.113.1".parse().unwrap(), start + EVERY * 7), "expired entries make room");
    }
}
