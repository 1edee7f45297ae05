//! The geofeed: where egress addresses are.

use std::fmt::Write as _;

use ipnet::IpNet;

use crate::EgressAddress;

/// The geofeed of addresses, in their order. An address without a country is left out: nothing is claimed about it.
///
//= RFC 8805 section 2.1.1
//# Each entry is a single line of comma-separated values
#[must_use]
pub fn geofeed(addresses: &[EgressAddress]) -> String {
    let mut text = "# prefix,country,region,city,postal code (RFC 8805)\n".to_owned();
    let mut sorted: Vec<_> = addresses.iter().filter(|one| one.country.is_some()).collect();
    sorted.sort_by_key(|one| one.address);
    for one in sorted {
        let Some(country) = one.country else { continue };
        let region = one.subdivision.as_deref().unwrap_or_default();
        let city = one.city.as_deref().unwrap_or_default();
        // Postal codes are deprecated (section 2.1.1.5); the field stays, empty.
        let _ = writeln!(text, "{},{country},{region},{city},", IpNet::from(one.address));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_with_a_country_has_a_line_of_five_fields() {
        let mut zurich = EgressAddress::new("198.51.100.7".parse().unwrap());
        zurich.country = "CH".parse().ok();
        (zurich.subdivision, zurich.city) = (Some("CH-ZH".into()), Some("Zürich".into()));
        let mut six = EgressAddress::new("2001:db8::7".parse().unwrap());
        six.country = "US".parse().ok();
        let untagged = EgressAddress::new("198.51.100.8".parse().unwrap());
        let text = geofeed(&[six, untagged, zurich]);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["198.51.100.7/32,CH,CH-ZH,Zürich,", "2001:db8::7/128,US,,,"]);
        assert!(text.ends_with('\n'));
    }
}
