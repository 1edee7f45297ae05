//! Versions of BIRD, and what each can do.

use std::{fmt, str::FromStr};

/// A version, such as 2.0.12 or 3.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The third number, or zero.
    pub patch: u16,
}

/// What not every version can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Roles of neighbours (RFC 9234).
    Roles,
    /// A session ends when the neighbour takes nothing any more (RFC 9687).
    SendHoldTimer,
    /// Checks of paths by ASPA.
    Aspa,
    /// Authentication of sessions by TCP-AO (RFC 5925).
    TcpAo,
}

/// A text names no version that this program can configure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// No greeting of BIRD.
    #[error("{0:?} is not the greeting of BIRD: is this its control socket?")]
    Greeting(String),
    /// Too old.
    #[error("BIRD {0} is too old: use 2.0.8 or later")]
    TooOld(Version),
}

impl Version {
    /// The oldest that is configured: the first whose neighbours have timers of BFD each.
    pub const OLDEST: Self = Self { major: 2, minor: 0, patch: 8 };

    /// Reads the version from the first line on the control socket, such as `0001 BIRD 2.0.12 ready.`
    ///
    /// # Errors
    /// The line is another, or the version is too old.
    pub fn from_greeting(line: &str) -> Result<Self, VersionError> {
        let unknown = || VersionError::Greeting(line.chars().take(64).collect());
        let text = line.trim_end().strip_prefix("0001 BIRD ").and_then(|rest| rest.strip_suffix(" ready."));
        let version: Self = text.ok_or_else(unknown)?.parse().map_err(|()| unknown())?;
        if version < Self::OLDEST { Err(VersionError::TooOld(version)) } else { Ok(version) }
    }

    /// Whether it can do this.
    #[must_use]
    pub fn has(self, feature: Feature) -> bool {
        let since = |minor, patch| self >= Self { major: 2, minor, patch };
        match feature {
            Feature::Roles => since(0, 11),
            Feature::SendHoldTimer => since(15, 0),
            Feature::Aspa => since(16, 0),
            // The first releases of 3 came before.
            Feature::TcpAo => since(17, 0) && (self.major, self.minor) != (3, 0),
        }
    }
}

impl FromStr for Version {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        // A build from sources says more after the numbers, such as 2.15.1+branch.master.
        let is_version = |letter: char| letter.is_ascii_digit() || letter == '.';
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let numbers = numbers.split(|letter| !is_version(letter)).next().unwrap_or_default();
        let mut parts = numbers.trim_end_matches('.').split('.');
        let mut next = || parts.next().map(|part| part.parse().map_err(|_| ()));
        let (major, minor) = (next().ok_or(())??, next().ok_or(())??);
        Ok(Self { major, minor, patch: next().transpose()?.unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_have_versions() {
        let read = |line: &str| Version::from_greeting(line).map(|version| version.to_string());
        assert_eq!(read("0001 BIRD 2.0.12 ready.\n").unwrap(), "2.0.12");
        assert_eq!(read("0001 BIRD 2.17 ready.").unwrap(), "2.17");
        assert_eq!(read("0001 BIRD v3.1.2+branch.x.abc ready.").unwrap(), "3.1.2");
        assert_eq!(
            read("0001 BIRD 2.0.7 ready.").unwrap_err().to_string(),
            "BIRD 2.0.7 is too old: use 2.0.8 or later"
        );
        for bad in ["", "0001 BIRD  ready.", "SSH-2.0-x", "0001 BIRD 99999999.1 ready.", "0001 BIRD 2 ready."] {
            assert!(read(bad).unwrap_err().to_string().contains("is not the greeting"), "{bad}");
        }
    }

    #[test]
    fn features_come_with_versions() {
        let has = |text: &str, feature| text.parse::<Version>().unwrap().has(feature);
        assert!(has("2.0.12", Feature::Roles) && !has("2.0.10", Feature::Roles));
        for feature in [Feature::SendHoldTimer, Feature::Aspa, Feature::TcpAo] {
            assert!(!has("2.0.12", feature) && has("2.17", feature) && has("3.1", feature), "{feature:?}");
        }
        assert!(!has("3.0.1", Feature::TcpAo));
    }
}
