//! Types of records.

use std::{fmt, str::FromStr};

/// The type of a record, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType(pub u16);

macro_rules! types {
    ($($name:ident = $number:literal),* $(,)?) => {
        impl RecordType {
            $(#[doc = concat!("The type ", stringify!($name), ".")] pub const $name: Self = Self($number);)*
        }

        const NAMES: &[(&str, u16)] = &[$((stringify!($name), $number)),*];
    };
}

types! {
    A = 1, NS = 2, CNAME = 5, SOA = 6, PTR = 12, HINFO = 13, MX = 15, TXT = 16, AAAA = 28, SRV = 33, NAPTR = 35,
    CERT = 37, DNAME = 39, OPT = 41, DS = 43, SSHFP = 44, RRSIG = 46, NSEC = 47, DNSKEY = 48, TLSA = 52, SMIMEA = 53,
    CDS = 59, CDNSKEY = 60, OPENPGPKEY = 61, CSYNC = 62, SVCB = 64, HTTPS = 65, NXNAME = 128, TSIG = 250, IXFR = 251,
    AXFR = 252, ANY = 255, CAA = 257,
}

/// Records of signatures and denials that this server does not make, and that would mislead secondaries: SIG, KEY, NXT,
/// NSEC3 and NSEC3PARAM.
const OLD_OR_OTHER_DNSSEC: [u16; 5] = [24, 25, 30, 50, 51];

impl RecordType {
    /// Whether records of this type are made by the name server and not written into a zone.
    #[must_use]
    pub fn is_made_by_the_server(self) -> bool {
        matches!(self, Self::RRSIG | Self::NSEC | Self::DNSKEY | Self::CDS | Self::CDNSKEY)
            || OLD_OR_OTHER_DNSSEC.contains(&self.0)
    }

    /// Whether the type stands for no data of a zone (RFC 6895 section 3.1).
    #[must_use]
    pub fn is_meta(self) -> bool {
        self == Self::OPT || (128..=255).contains(&self.0) || self.0 == 0
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

/// The text is no type of records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no type of records")]
pub struct RecordTypeError(pub String);

impl FromStr for RecordType {
    type Err = RecordTypeError;

    fn from_str(text: &str) -> Result<Self, RecordTypeError> {
        let upper = text.to_ascii_uppercase();
        let known = NAMES.iter().find(|(name, _)| *name == upper).map(|(_, number)| *number);
        let number = known.or_else(|| upper.strip_prefix("TYPE").and_then(|number| number.parse().ok()));
        number.map(Self).ok_or_else(|| RecordTypeError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_and_numbers() {
        assert_eq!("aaaa".parse(), Ok(RecordType::AAAA));
        assert_eq!("TYPE1234".parse(), Ok(RecordType(1234)));
        assert_eq!(RecordType(1234).to_string(), "TYPE1234");
        assert_eq!(RecordType::HTTPS.to_string(), "HTTPS");
        assert!("FOO".parse::<RecordType>().is_err());
        assert!(RecordType::NXNAME.is_meta() && RecordType::ANY.is_meta() && !RecordType::CAA.is_meta());
    }
}
