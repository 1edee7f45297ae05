//! Names of sockets: `wandering-shape-7752`, one DNS label each.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest DNS label (RFC 1035 section 2.3.4), in bytes.
pub const MAX_LABEL_BYTES: usize = 63;

/// Labels that Sallyport itself uses; no socket gets them.
const RESERVED: &[&str] = &["api", "tunnel", "edge", "control", "desk", "www", "admin", "auth", "login", "ns1", "ns2"];

/// The name of a socket: a DNS label (letters, digits, hyphens), lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SocketName(String);

/// Reason why a text is not a name of a socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty or longer than a DNS label.
    #[error("a socket name has 1 to {MAX_LABEL_BYTES} characters")]
    Length,
    /// A character that a host name cannot have.
    #[error("a socket name has only letters a-z, digits and hyphens, not {0:?}")]
    Character(char),
    /// A hyphen at the start or end.
    #[error("a socket name starts and ends with a letter or a digit")]
    Hyphen,
    /// The name is reserved.
    #[error("the name {0:?} is reserved")]
    Reserved(String),
}

impl SocketName {
    /// A generated name. The same random number gives the same name; there are [`name_combinations`] of them.
    #[must_use]
    pub fn generate(random: u64) -> Self {
        let pick = |words: &[&'static str], divisor: u64| {
            words[usize::try_from((random / divisor) % words.len() as u64).unwrap_or(0)]
        };
        let number = random % 9_000 + 1_000;
        let adjective = pick(ADJECTIVES, 9_000);
        let noun = pick(NOUNS, 9_000 * ADJECTIVES.len() as u64);
        Self(format!("{adjective}-{noun}-{number}"))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Number of different names of [`SocketName::generate`].
#[must_use]
pub fn name_combinations() -> u64 {
    9_000 * ADJECTIVES.len() as u64 * NOUNS.len() as u64
}

impl FromStr for SocketName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MAX_LABEL_BYTES {
            return Err(NameError::Length);
        }
        if let Some(bad) = text.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')) {
            return Err(NameError::Character(bad));
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Hyphen);
        }
        if RESERVED.contains(&text) {
            return Err(NameError::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for SocketName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<SocketName> for String {
    fn from(name: SocketName) -> String {
        name.0
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[rustfmt::skip]
const ADJECTIVES: &[&str] = &[
    "amber", "ancient", "autumn", "azure", "bold", "brave", "bright", "brisk", "calm", "cheerful", "clever", "cobalt",
    "cosmic", "crimson", "crisp", "curious", "daring", "dawn", "deep", "distant", "dusty", "eager", "early", "earnest",
    "emerald", "fading", "fearless", "fleeting", "floral", "flowing", "forest", "fresh", "frosty", "gentle", "gilded",
    "glowing", "golden", "graceful", "hidden", "hollow", "humble", "icy", "indigo", "ivory", "jolly", "keen", "kind",
    "lively", "lofty", "lucky", "lunar", "mellow", "merry", "misty", "modest", "mossy", "narrow", "nimble", "noble",
    "northern", "patient", "placid", "plain", "polished", "proud", "purple", "quiet", "rapid", "restless", "roaming",
    "rosy", "rugged", "rustic", "sandy", "scarlet", "serene", "shy", "silent", "silver", "sleepy", "slender", "smooth",
    "snowy", "solar", "solid", "southern", "sparkling", "spring", "steady", "still", "stormy", "summer", "sunny",
    "swift", "tidal", "tranquil", "twilight", "velvet", "wandering", "warm", "western", "wild", "winter", "wise",
];

#[rustfmt::skip]
const NOUNS: &[&str] = &[
    "acorn", "anchor", "arch", "aspen", "badger", "bay", "beacon", "birch", "bird", "bloom", "boulder", "branch",
    "breeze", "bridge", "brook", "canyon", "cave", "cedar", "cliff", "cloud", "comet", "coral", "cove", "crane",
    "creek", "dew", "dune", "eagle", "echo", "elm", "ember", "falcon", "feather", "fern", "field", "finch", "fire",
    "fjord", "flame", "flower", "fog", "forge", "fox", "frost", "garden", "gate", "glacier", "glade", "grove",
    "harbor", "haven", "hawk", "hazel", "heron", "hill", "horizon", "island", "jade", "lagoon", "lake", "lantern",
    "leaf", "lily", "lynx", "maple", "marsh", "meadow", "mesa", "mist", "moon", "moss", "mountain", "oak", "ocean",
    "orchard", "otter", "owl", "path", "peak", "pebble", "pine", "plain", "pond", "prairie", "quartz", "rain",
    "raven", "reef", "ridge", "river", "rock", "sail", "sea", "shadow", "shape", "shore", "sky", "snow", "sparrow",
    "spring", "star", "stone", "stream", "sun", "thicket", "thunder", "tide", "trail", "tree", "valley", "violet",
    "water", "wave", "willow", "wind", "wood", "wren",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_generated_name_is_a_valid_name(random: u64) {
            let name = SocketName::generate(random);
            prop_assert_eq!(name.as_str().parse::<SocketName>(), Ok(name.clone()));
            prop_assert_eq!(name.as_str().split('-').count(), 3);
        }
    }

    #[test]
    fn generated_names_differ() {
        let names: std::collections::HashSet<_> = (0..100_000u64).map(|n| SocketName::generate(n * 7_919)).collect();
        assert!(names.len() > 99_000, "{}", names.len());
        assert!(name_combinations() > 100_000_000);
    }

    #[test]
    fn bad_names_are_refused_with_their_reason() {
        assert_eq!("".parse::<SocketName>(), Err(NameError::Length));
        assert_eq!("a".repeat(64).parse::<SocketName>(), Err(NameError::Length));
        assert_eq!("Upper".parse::<SocketName>(), Err(NameError::Character('U')));
        assert_eq!("a.b".parse::<SocketName>(), Err(NameError::Character('.')));
        assert_eq!("-a".parse::<SocketName>(), Err(NameError::Hyphen));
        assert_eq!("api".parse::<SocketName>(), Err(NameError::Reserved("api".into())));
    }
}
