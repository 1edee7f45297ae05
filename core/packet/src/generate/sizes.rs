//! Sizes of frames, as RFC 2544 counts them: with the check sequence.

use std::str::FromStr;

use super::{CHECK_SEQUENCE, PREAMBLE_AND_GAP};

/// The most sizes that follow one another.
pub const MAX_SIZES: usize = 64;
/// The simple IMIX: 7 of 64 bytes, 4 of 594 and 1 of 1,518 in twelve frames, spread.
pub const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];

/// Sizes that follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<u16>);

impl Sizes {
    /// These sizes, of which there are 1 to [`MAX_SIZES`].
    #[must_use]
    pub fn of(sizes: &[u16]) -> Option<Self> {
        (!sizes.is_empty() && sizes.len() <= MAX_SIZES).then(|| Self(sizes.to_vec()))
    }

    /// The simple IMIX, where no frame is smaller than `least`.
    #[must_use]
    pub fn imix(least: u16) -> Self {
        Self(IMIX.iter().map(|size| (*size).max(least)).collect())
    }

    /// The sizes in their order.
    #[must_use]
    pub fn sizes(&self) -> &[u16] {
        &self.0
    }

    /// The smallest and the largest.
    #[must_use]
    pub fn bounds(&self) -> (u16, u16) {
        let least = self.0.iter().min().copied().unwrap_or_default();
        (least, self.0.iter().max().copied().unwrap_or_default())
    }

    /// The mean of bytes on the wire.
    #[must_use]
    pub fn mean_wire_bytes(&self) -> f64 {
        let sum: u32 = self.0.iter().map(|size| u32::from(*size) + u32::from(PREAMBLE_AND_GAP)).sum();
        f64::from(sum) / self.0.len().max(1) as f64
    }

    /// The sizes as the program sees them: without the check sequence.
    pub fn frames(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().map(|size| size.saturating_sub(CHECK_SEQUENCE))
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// Reads `64` or `64,512,1518`.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = |word: &str| {
            word.trim().parse::<u16>().map_err(|_| format!("expected sizes such as 64 or 64,512,1518, not `{text}`"))
        };
        let sizes = text.split(',').take(MAX_SIZES + 1).map(read).collect::<Result<Vec<_>, _>>()?;
        Self::of(&sizes).ok_or_else(|| format!("`{text}` has more than {MAX_SIZES} sizes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_its_shares() {
        let mix = Sizes::imix(64);
        let shares = [64, 594, 1518].map(|size| mix.sizes().iter().filter(|other| **other == size).count());
        assert_eq!(shares, [7, 4, 1]);
        // The mean of the simple IMIX: 361.8 bytes, and 20 on the wire.
        assert!((mix.mean_wire_bytes() - 381.83).abs() < 0.01, "{}", mix.mean_wire_bytes());
        assert_eq!((Sizes::imix(84).bounds(), mix.frames().next()), ((84, 1518), Some(60)));
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!("64,512, 1518".parse::<Sizes>().map(|sizes| sizes.bounds()), Ok((64, 1518)));
        assert!("64,".parse::<Sizes>().unwrap_err().contains("expected sizes"));
        assert!(vec!["64"; 65].join(",").parse::<Sizes>().unwrap_err().contains("more than 64 sizes"));
    }
}
