//! Rates: frames a second, or bits a second on the wire.

use std::{fmt, str::FromStr};

/// The most frames a second: one every nanosecond is far above any card.
const MAX_PPS: f64 = 1e9;
/// The most bits a second.
const MAX_BPS: f64 = 1e12;
/// Parts of a nanosecond that the program counts in.
const PARTS: f64 = 1024.0;

/// A rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Frames a second.
    Packets(f64),
    /// Bits a second on the wire: frames with check sequence, preamble and gap.
    Bits(f64),
}

/// What a frame costs of the time, in 1,024ths of a nanosecond. Zero twice is as fast as can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// For a frame.
    pub frame: u64,
    /// For a byte on the wire.
    pub byte: u64,
}

impl Pace {
    /// The pace of one of several senders.
    #[must_use]
    pub fn part(self, senders: u64) -> Self {
        Self { frame: self.frame.saturating_mul(senders), byte: self.byte.saturating_mul(senders) }
    }
}

impl Rate {
    /// A part of the rate.
    #[must_use]
    pub fn scaled(self, part: f64) -> Self {
        match self {
            Self::Packets(rate) => Self::Packets(rate * part),
            Self::Bits(rate) => Self::Bits(rate * part),
        }
    }

    /// The pace of the rate.
    #[must_use]
    pub fn pace(self) -> Pace {
        let parts = |each: f64| (each * 1e9 * PARTS).round().max(1.0) as u64;
        match self {
            Self::Packets(rate) => Pace { frame: parts(1.0 / rate), byte: 0 },
            Self::Bits(rate) => Pace { frame: 0, byte: parts(8.0 / rate) },
        }
    }

    /// Frames a second, for frames of these bytes on the wire.
    #[must_use]
    pub fn packets(self, wire_bytes: f64) -> f64 {
        match self {
            Self::Packets(rate) => rate,
            Self::Bits(rate) => rate / 8.0 / wire_bytes,
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `250`, `100k`, `1.5Mpps`, `10Gbps`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a rate such as 250, 100k, 1.5Mpps or 10Gbps, not `{text}`");
        let (number, is_bits) = match (text.strip_suffix("bps"), text.strip_suffix("pps")) {
            (Some(number), _) => (number, true),
            (None, number) => (number.unwrap_or(text), false),
        };
        let (number, factor) = match number.chars().last() {
            Some('k' | 'K') => (&number[..number.len() - 1], 1e3),
            Some('M') => (&number[..number.len() - 1], 1e6),
            Some('G') => (&number[..number.len() - 1], 1e9),
            _ => (number, 1.0),
        };
        if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(wrong());
        }
        let rate = number.parse::<f64>().map_err(|_| wrong())? * factor;
        if rate <= 0.0 {
            return Err("a rate of 0 sends nothing: leave --rate out for as fast as can be".to_owned());
        }
        let (least, most) = if is_bits { (1_000.0, MAX_BPS) } else { (0.001, MAX_PPS) };
        if !(least..=most).contains(&rate) {
            return Err(format!(
                "the rate `{text}` is out of bounds: 0.001 to 1G frames, or 1k to 1000G bits a second"
            ));
        }
        Ok(if is_bits { Self::Bits(rate) } else { Self::Packets(rate) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, unit) = match self {
            Self::Packets(rate) => (*rate, "pps"),
            Self::Bits(rate) => (*rate, "bps"),
        };
        match rate {
            rate if rate >= 1e9 => write!(f, "{:.3} G{unit}", rate / 1e9),
            rate if rate >= 1e6 => write!(f, "{:.3} M{unit}", rate / 1e6),
            rate if rate >= 1e3 => write!(f, "{:.3} k{unit}", rate / 1e3),
            rate => write!(f, "{rate:.1} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_their_unit() {
        let read = |text: &str| text.parse::<Rate>();
        assert_eq!(read("250"), Ok(Rate::Packets(250.0)));
        assert_eq!(read("1.5Mpps"), Ok(Rate::Packets(1_500_000.0)));
        assert_eq!(read("10Gbps"), Ok(Rate::Bits(1e10)));
        assert!(read("0").unwrap_err().contains("sends nothing"));
        assert!(read("0.0Gbps").unwrap_err().contains("sends nothing"));
        for bad in ["", "k", "-1", "1e9", "inf", "NaN", "1x", "1 k", "1.2.3", "Mpps"] {
            assert!(read(bad).unwrap_err().contains("expected a rate"), "{bad}");
        }
        for bad in ["2G", "2000Gbps", "1bps"] {
            assert!(read(bad).unwrap_err().contains("out of bounds"), "{bad}");
        }
    }

    #[test]
    fn a_pace_is_the_time_of_a_frame_or_a_byte() {
        assert_eq!(Rate::Packets(1e6).pace(), Pace { frame: 1_024_000, byte: 0 });
        // 10 Gbit/s: 0.8 ns for a byte.
        assert_eq!(Rate::Bits(1e10).pace(), Pace { frame: 0, byte: 819 });
        // The line rate of RFC 2544: 14,880,952 frames of 64 bytes a second over 10 Gbit/s.
        assert!((Rate::Bits(1e10).packets(84.0) - 14_880_952.38).abs() < 1.0);
    }
}
