//! Times and amounts as people read them.

use time::{OffsetDateTime, UtcOffset};

/// The time of day.
pub(crate) fn clock(at_ms: i64, offset: UtcOffset) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at_ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .to_offset(offset);
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

/// A span of time with three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn duration(us: u64) -> String {
    let ms = us as f64 / 1_000.0;
    match us {
        0..=9_999 => format!("{ms:.2} ms"),
        10_000..=99_999 => format!("{ms:.1} ms"),
        100_000..=999_999 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1_000.0),
    }
}

/// An amount of data with about three digits (units of 1,000).
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1_000 {
        return format!("{count} B");
    }
    let mut amount = count as f64 / 1_000.0;
    let mut unit = 0;
    while amount >= 999.5 && unit + 1 < UNITS.len() {
        amount /= 1_000.0;
        unit += 1;
    }
    let digits = usize::from(amount < 99.95);
    format!("{amount:.digits$} {}", UNITS[unit])
}
