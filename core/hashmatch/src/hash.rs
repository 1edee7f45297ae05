//! Hashes, their text, and their distance.

use std::str::FromStr;

/// The bytes of a hash, one for each dimension.
pub const HASH_BYTES: usize = 144;

/// A point in 144 dimensions.
pub type Hash = [u8; HASH_BYTES];

/// The bytes after which a distance is compared with its limit.
const STEP_BYTES: usize = 48;

/// The text is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// It has another length.
    #[error("a hash has 288 hexadecimal digits, and this has {0}")]
    Length(usize),
    /// It has other characters.
    #[error("the character {0} is no hexadecimal digit")]
    Digit(usize),
}

/// Parses a hash: 288 hexadecimal digits.
///
/// # Errors
/// The length is another, or a character is no hexadecimal digit.
pub fn parse(text: &str) -> Result<Hash, HashError> {
    let digits = text.as_bytes();
    if digits.len() != 2 * HASH_BYTES {
        return Err(HashError::Length(text.chars().count()));
    }
    let digit = |at: usize| {
        let value = char::from(digits[at]).to_digit(16).and_then(|value| u8::try_from(value).ok());
        value.ok_or(HashError::Digit(at + 1))
    };
    let mut hash = [0; HASH_BYTES];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = digit(2 * at)? << 4 | digit(2 * at + 1)?;
    }
    Ok(hash)
}

/// The squared Euclidean distance.
#[must_use]
pub fn distance(one: &Hash, other: &Hash) -> u32 {
    part(one, other)
}

/// The squared distance, if it is less than the limit.
pub(crate) fn distance_below(one: &Hash, other: &Hash, limit: u32) -> Option<u32> {
    let mut sum = 0;
    for (one, other) in one.chunks_exact(STEP_BYTES).zip(other.chunks_exact(STEP_BYTES)) {
        sum += part(one, other);
        if sum >= limit {
            return None;
        }
    }
    Some(sum)
}

/// The squared distance in some of the dimensions.
pub(crate) fn part(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| u32::from(one.abs_diff(*other)).pow(2)).sum()
}

/// The distance up to which a row matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold(u16);

impl Threshold {
    /// The greatest distance of two hashes: 12 times 255.
    pub const MAX: Self = Self(3_060);

    /// The squared distance from which a row is too far.
    pub(crate) fn limit(self) -> u32 {
        u32::from(self.0).pow(2) + 1
    }
}

impl Default for Threshold {
    fn default() -> Self {
        Self(220)
    }
}

/// The text is no threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no threshold: use a distance from 0 to {}", Threshold::MAX.0)]
pub struct ThresholdError {
    /// The text, cut to 64 characters.
    text: String,
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let distance = text.parse().ok().filter(|distance| *distance <= Self::MAX.0);
        distance.map(Self).ok_or_else(|| ThresholdError { text: text.chars().take(64).collect() })
    }
}
