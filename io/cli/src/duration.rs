//! Durations on the command line: `500ms`, `10s`, `2m`, `1h`.

use std::time::Duration;

/// The longest duration of an option: a day.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest long duration: ten years.
const MAX_LONG_SECONDS: u64 = 3_650 * 86_400;

/// Parses a duration of at most a day.
///
/// # Errors
/// One sentence with the expected form.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 500ms, 10s or 2m, at most a day".to_owned();
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

/// Parses a long duration: also days, at most ten years.
///
/// # Errors
/// One sentence with the expected form.
pub fn parse_long(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 30m, 12h or 90d, at most 3650d".to_owned();
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|number| digits && *number > 0).ok_or_else(wrong)?;
    let span = number.checked_mul(seconds).filter(|span| *span <= MAX_LONG_SECONDS).ok_or_else(wrong)?;
    Ok(Duration::from_secs(span))
}

/// Like [`parse`], but not zero.
///
/// # Errors
/// One sentence with the expected form.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    parse(text)?.checked_sub(Duration::from_nanos(1)).ok_or("expected a time greater than zero")?;
    parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_spans_have_days() {
        assert_eq!(parse_long("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(parse_long("30m"), Ok(Duration::from_secs(1_800)));
        for bad in ["", "d", "0d", "-1d", "+1d", "1w", "90", "3651d", "99999999999999999999d", "1é"] {
            assert!(parse_long(bad).is_err(), "{bad}");
        }
    }

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
        assert!(parse_positive("0s").unwrap_err().contains("greater than zero"));
        assert_eq!(parse_positive("1ms"), Ok(Duration::from_millis(1)));
    }
}
