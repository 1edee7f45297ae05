//! The price of one IPv4 address.

use std::str::FromStr;

/// The highest price, in hundredths: all values then fit 53 bits, as JSON numbers do.
const MAX_HUNDREDTHS: u64 = 1_000_000;

/// The price of one IPv4 address, exact to a hundredth, in any currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    hundredths: u64,
}

/// The text is no price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no price of one address: use a number up to 10000 with at most two decimals, such as 25 or 31.50")]
pub struct PriceError {
    /// The text, cut to 64 characters.
    text: String,
}

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let read = || {
            let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
            let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number(whole) || !is_number(part) || part.len() > 2 {
                return None;
            }
            let hundredths =
                whole.parse::<u64>().ok()?.checked_mul(100)? + format!("{part:0<2}").parse::<u64>().ok()?;
            (hundredths <= MAX_HUNDREDTHS).then_some(Self { hundredths })
        };
        read().ok_or_else(|| PriceError { text: text.chars().take(64).collect() })
    }
}

impl Price {
    /// The value of so many addresses.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the product of at most 2^32 and 1,000,000 is exact in 53 bits")]
    pub fn of(self, addresses: u64) -> f64 {
        (addresses * self.hundredths) as f64 / 100.0
    }
}
