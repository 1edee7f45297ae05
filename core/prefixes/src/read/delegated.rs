//! Delegated statistics of registries, also the extended ones: `registry|cc|type|start|value|date|status|opaque-id`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use super::collector::{Collector, PrefixError, shown};

/// Adds a line. Returns the serial, which is a date, if the line is the version line.
///
/// Lines of AS numbers, of summaries, and of what is available or reserved have no effect. With a holder, only the
/// blocks of this opaque id count.
pub(super) fn add_line(
    line: &str,
    collector: &mut Collector,
    holder: Option<&str>,
) -> Result<Option<String>, PrefixError> {
    let fields: Vec<_> = line.split('|').map(str::trim).collect();
    if fields[0].starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(fields.get(2).map(|serial| shown(serial)));
    }
    if fields.last() == Some(&"summary") {
        return Ok(None);
    }
    let [_, _, family, start, value, _, status, rest @ ..] = fields.as_slice() else {
        return Err(PrefixError::Fields(shown(line)));
    };
    let is_held = matches!(*status, "allocated" | "assigned");
    let is_of_holder = holder.is_none_or(|holder| rest.first() == Some(&holder));
    if !is_held || !is_of_holder {
        return Ok(None);
    }
    let wrong = || PrefixError::Value(shown(line));
    match *family {
        "ipv4" => {
            let first: Ipv4Addr = start.parse().map_err(|_| PrefixError::Syntax(shown(start)))?;
            let count: u32 = value.parse().map_err(|_| wrong())?;
            let last = count.checked_sub(1).and_then(|more| first.to_bits().checked_add(more)).ok_or_else(wrong)?;
            collector.add_range(IpAddr::V4(first), IpAddr::V4(Ipv4Addr::from_bits(last)))?;
        }
        "ipv6" => {
            let first: Ipv6Addr = start.parse().map_err(|_| PrefixError::Syntax(shown(start)))?;
            let network = value.parse().ok().and_then(|length| Ipv6Net::new(first, length).ok()).ok_or_else(wrong)?;
            collector.add_network(IpNet::V6(network), &network.to_string())?;
        }
        _ => {}
    }
    Ok(None)
}
