//! Spans of time on the command line: `500ms`, `10s`, `2m`, `1h`.

use std::time::Duration;

/// The longest span that an option takes: a day.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a span of time of at most a day.
///
/// # Errors
/// One sentence that says what was expected.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 500ms, 10s or 2m, a day at most".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" | "" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    milliseconds.map(Duration::from_millis).filter(|span| *span <= MAX).ok_or_else(wrong)
}

/// Like [`parse`], but not zero.
///
/// # Errors
/// One sentence that says what was expected.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    parse(text)?.checked_sub(Duration::from_nanos(1)).ok_or("expected more than no time at all")?;
    parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("24h"), Ok(MAX));
        for bad in ["", "s", "-1s", "1.5s", "1d", "25h", "99999999999999999999s", "18446744073709551615h", "10 s"] {
            assert!(parse(bad).unwrap_err().contains("expected a time"), "{bad}");
        }
        assert!(parse_positive("0s").unwrap_err().contains("more than no time"));
        assert_eq!(parse_positive("1ms"), Ok(Duration::from_millis(1)));
    }
}
