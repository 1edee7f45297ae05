//! Results of RIPE Atlas, as JSON.
//!
//! Its format is an array of results, or one result a line. Of each result this reads: `type`, `from`, `timestamp` and
//! `dst_addr`; of `dns` the answers with their time; of `ping` the shortest time; of `traceroute` the hops.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use sallyport_model::RegionName;
use serde_json::Value;

use super::SiteNames;
use crate::{Prefix, Row, Source, table::MAX_CLIENT_ROUND_TRIP};

/// The largest file, in bytes.
pub const MAX_ATLAS_BYTES: usize = 64 * 1024 * 1024;
/// The most results in a file.
pub const MAX_ATLAS_RESULTS: usize = 100_000;
/// The most hops, answers and replies of one result that are looked at.
const MAX_PARTS: usize = 256;

/// Reason why a file has no result that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AtlasError {
    /// The file is larger than [`MAX_ATLAS_BYTES`].
    #[error("a file of results has at most {} MiB", MAX_ATLAS_BYTES / 1024 / 1024)]
    TooLarge,
    /// The file has more than [`MAX_ATLAS_RESULTS`] results.
    #[error("a file has at most {MAX_ATLAS_RESULTS} results: split it")]
    TooMany,
    /// The file is no JSON.
    #[error("the file is no JSON of RIPE Atlas results: expected an array, or one result a line")]
    NotJson,
    /// The file is JSON and has no result of a probe.
    #[error("the file has no result of RIPE Atlas: expected objects with `type`, `from` and `timestamp`")]
    NoResults,
    /// No result names a site.
    #[error(
        "none of the {results} results names a site{}: give rules such as `--site-of fra=eu` or \
         `--site-of 198.51.100.0/24=eu`",
        example.as_ref().map(|text| format!(" (one says {text:?})")).unwrap_or_default()
    )]
    NoSites {
        /// How many results there are.
        results: usize,
        /// What one of them says.
        example: Option<String>,
    },
}

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtlasResult {
    /// A row for each network and site.
    pub rows: Vec<Row>,
    /// How many results there are.
    pub results: usize,
    /// How many of them name no site, failed, or have no usable address of their probe.
    pub skipped: usize,
}

/// Reads the results of a file.
///
/// # Errors
/// The file is too large, is of another form, or nothing in it names a site.
pub fn atlas_results(bytes: &[u8], sites: &SiteNames) -> Result<AtlasResult, AtlasError> {
    if bytes.len() > MAX_ATLAS_BYTES {
        return Err(AtlasError::TooLarge);
    }
    let results = values(bytes)?;
    let mut rows: BTreeMap<(Prefix, RegionName), Row> = BTreeMap::new();
    let (mut count, mut used, mut example) = (0, 0, None);
    for result in &results {
        let Some((kind, prefix, seen)) = head(result) else { continue };
        count += 1;
        let found = match kind {
            "dns" => of_dns(result, sites, &mut example),
            "ping" => of_ping(result, sites),
            "traceroute" => of_traceroute(result, sites),
            _ => None,
        };
        let Some(Found { site, round_trip, has_landed }) = found else { continue };
        used += 1;
        let key = (prefix, site.clone());
        let row = rows.entry(key).or_insert_with(|| Row::new(prefix, site, Source::Atlas, seen));
        row.requests += u64::from(has_landed);
        row.round_trip = [row.round_trip, round_trip].into_iter().flatten().min();
        row.seen = row.seen.max(seen);
    }
    if count == 0 {
        return Err(AtlasError::NoResults);
    }
    if rows.is_empty() {
        return Err(AtlasError::NoSites { results: count, example });
    }
    Ok(AtlasResult { rows: rows.into_values().collect(), results: count, skipped: count - used })
}

/// What a result says.
struct Found {
    site: RegionName,
    round_trip: Option<Duration>,
    /// Whether the probe landed there; otherwise the site was measured by an address of its own.
    has_landed: bool,
}

fn values(bytes: &[u8]) -> Result<Vec<Value>, AtlasError> {
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
        match value.map_err(|_| AtlasError::NotJson)? {
            Value::Array(many) => values.extend(many),
            one @ Value::Object(_) => values.push(one),
            _ => return Err(AtlasError::NotJson),
        }
        if values.len() > MAX_ATLAS_RESULTS {
            return Err(AtlasError::TooMany);
        }
    }
    if values.is_empty() { Err(AtlasError::NoResults) } else { Ok(values) }
}

/// The type of a result, the network of its probe, and its time.
fn head(result: &Value) -> Option<(&str, Prefix, i64)> {
    let kind = result.get("type")?.as_str()?;
    let from: IpAddr = result.get("from")?.as_str()?.parse().ok()?;
    let seen = result.get("timestamp")?.as_i64().filter(|seen| *seen >= 0)?;
    Some((kind, Prefix::of(from), seen))
}

fn of_dns(result: &Value, sites: &SiteNames, example: &mut Option<String>) -> Option<Found> {
    let of_one = |one: &Value, example: &mut Option<String>| {
        let answers = one.get("answers")?.as_array()?;
        for answer in answers.iter().take(MAX_PARTS) {
            let texts = match answer.get("RDATA")? {
                Value::String(text) => vec![text.as_str()],
                Value::Array(texts) => texts.iter().take(MAX_PARTS).filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            for text in texts {
                if let Some(site) = sites.of_text(text) {
                    return Some(Found { site: site.clone(), round_trip: ms(one.get("rt")), has_landed: true });
                }
                example.get_or_insert_with(|| text.chars().take(64).collect());
            }
        }
        None
    };
    match result.get("resultset") {
        Some(set) => set.as_array()?.iter().take(MAX_PARTS).find_map(|one| of_one(one.get("result")?, example)),
        None => of_one(result.get("result")?, example),
    }
}

/// Pings go to an address of one site: they tell a round trip, and no landing.
fn of_ping(result: &Value, sites: &SiteNames) -> Option<Found> {
    let site = sites.of_address(address(result.get("dst_addr")?)?)?.clone();
    let round_trip = ms(result.get("min"))?;
    Some(Found { site, round_trip: Some(round_trip), has_landed: false })
}

/// The last hop within a network of a site tells the landing, unless the target itself is an address of one site.
fn of_traceroute(result: &Value, sites: &SiteNames) -> Option<Found> {
    let target = result.get("dst_addr").and_then(address);
    let own = target.and_then(|target| sites.of_address(target));
    let hops = result.get("result")?.as_array()?;
    let replies = hops.iter().take(MAX_PARTS).rev().filter_map(|hop| hop.get("result")?.as_array());
    let mut replies = replies.flat_map(|replies| replies.iter().take(MAX_PARTS));
    let mut arrived = None;
    let site = replies.find_map(|reply| {
        let from = address(reply.get("from")?)?;
        if Some(from) == target {
            arrived = [arrived, ms(reply.get("rtt"))].into_iter().flatten().min();
        }
        sites.of_address(from)
    });
    let site = own.or(site)?.clone();
    let has_landed = own.is_none();
    (has_landed || arrived.is_some()).then_some(Found { site, round_trip: arrived, has_landed })
}

fn address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// A time in milliseconds that can be a round trip.
fn ms(value: Option<&Value>) -> Option<Duration> {
    let ms = value?.as_f64().filter(|ms| *ms > 0.0)?;
    Duration::try_from_secs_f64(ms / 1e3).ok().filter(|time| !time.is_zero() && *time <= MAX_CLIENT_ROUND_TRIP)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sites() -> SiteNames {
        let edges = [("eu-1".to_owned(), "eu".parse().unwrap()), ("us-1".to_owned(), "us".parse().unwrap())];
        SiteNames::new(edges, vec!["198.51.100.0/24=ap".parse().unwrap(), "203.0.113.0/24=sa".parse().unwrap()])
    }

    fn read(value: &Value) -> Result<AtlasResult, AtlasError> {
        atlas_results(value.to_string().as_bytes(), &sites())
    }

    fn dns(from: &str, text: Value, rt: f64) -> Value {
        json!({"type": "dns", "from": from, "timestamp": 1_700_000_000, "dst_addr": "192.0.2.53", "prb_id": 1,
            "result": {"rt": rt, "ANCOUNT": 1, "answers": [{"TYPE": "TXT", "NAME": "id.server", "RDATA": text}]}})
    }

    fn shown(result: &AtlasResult) -> Vec<(String, &str, u64, Option<u128>)> {
        let row = |row: &Row| {
            let time = row.round_trip.map(|time| time.as_micros());
            (row.prefix.to_string(), row.site.clone(), row.requests, time)
        };
        let rows: Vec<_> = result.rows.iter().map(row).collect();
        let names = ["ap", "eu", "sa", "us"];
        rows.into_iter()
            .map(|(prefix, site, requests, time)| {
                (prefix, *names.iter().find(|name| **name == site.as_str()).unwrap(), requests, time)
            })
            .collect()
    }

    #[test]
    fn answers_of_the_dns_name_sites() {
        let set = json!({"type": "dns", "from": "2001:db8::7", "timestamp": 5, "resultset": [
            {"error": {"timeout": 5000}},
            {"result": {"rt": 7.5, "answers": [{"RDATA": "us-1.example."}]}}
        ]});
        let result = read(&json!([
            dns("192.0.2.1", json!(["eu-1"]), 12.5),
            dns("192.0.2.9", json!("EU-1"), 11.0),
            dns("192.0.2.9", json!(["nobody"]), 1.0),
            set,
            {"type": "dns", "from": "192.0.2.1", "timestamp": 5, "error": {"timeout": 5000}},
            {"type": "ntp", "from": "192.0.2.1", "timestamp": 5},
            "noise"
        ]));
        let result = result.unwrap();
        assert_eq!(
            shown(&result),
            [("192.0.2.0/24".to_owned(), "eu", 2, Some(11_000)), ("2001:db8::/48".to_owned(), "us", 1, Some(7_500))]
        );
        assert_eq!((result.results, result.skipped), (6, 3));
    }

    #[test]
    fn pings_tell_round_trips_and_traceroutes_landings() {
        let hop = |from: &str, rtt: f64| json!({"hop": 1, "result": [{"x": "*"}, {"from": from, "rtt": rtt}]});
        let result = read(&json!([
            {"type": "ping", "from": "192.0.2.1", "timestamp": 5, "dst_addr": "198.51.100.7", "min": 20.5},
            {"type": "ping", "from": "192.0.3.1", "timestamp": 5, "dst_addr": "198.51.100.7", "min": -1},
            {"type": "traceroute", "from": "192.0.4.1", "timestamp": 5, "dst_addr": "192.0.2.53",
                "result": [hop("198.51.100.9", 5.0), hop("203.0.113.9", 9.0), hop("192.0.2.53", 10.0)]},
            {"type": "traceroute", "from": "192.0.5.1", "timestamp": 5, "dst_addr": "198.51.100.7",
                "result": [hop("203.0.113.9", 9.0), hop("198.51.100.7", 10.0)]},
            {"type": "traceroute", "from": "192.0.6.1", "timestamp": 5, "dst_addr": "192.0.2.53",
                "result": [hop("8.8.8.8", 9.0)]}
        ]));
        let result = result.unwrap();
        assert_eq!(
            shown(&result),
            [
                ("192.0.2.0/24".to_owned(), "ap", 0, Some(20_500)),
                ("192.0.4.0/24".to_owned(), "sa", 1, Some(10_000)),
                ("192.0.5.0/24".to_owned(), "ap", 0, Some(10_000)),
            ]
        );
        assert_eq!(result.skipped, 2);
    }

    #[test]
    fn one_result_a_line_is_read_too() {
        let lines = format!("{}\n{}\n", dns("192.0.2.1", json!(["eu-1"]), 1.0), dns("192.0.3.1", json!(["us-1"]), 1.0));
        assert_eq!(atlas_results(lines.as_bytes(), &sites()).unwrap().rows.len(), 2);
    }

    #[test]
    fn wrong_files_get_one_sentence() {
        for (text, sentence) in [
            ("", "the file has no result of RIPE Atlas"),
            ("[]", "the file has no result of RIPE Atlas"),
            ("{}", "the file has no result of RIPE Atlas"),
            ("7", "the file is no JSON"),
            ("<html>", "the file is no JSON"),
            ("[{\"type\":", "the file is no JSON"),
            (&"[".repeat(100_000), "the file is no JSON"),
            ("[{\"type\":\"dns\",\"from\":\"here\",\"timestamp\":1}]", "the file has no result of RIPE Atlas"),
        ] {
            let error = atlas_results(text.as_bytes(), &sites()).unwrap_err().to_string();
            assert!(error.starts_with(sentence), "{text:.40}: {error}");
        }
        let error = read(&json!([dns("192.0.2.1", json!(["fra2\u{1b}"]), 1.0)])).unwrap_err().to_string();
        let wanted = "none of the 1 results names a site (one says \"fra2\\u{1b}\"): give rules such as";
        assert!(error.starts_with(wanted), "{error}");
        let many = format!("[{}0]", "0,".repeat(MAX_ATLAS_RESULTS));
        assert_eq!(atlas_results(many.as_bytes(), &sites()), Err(AtlasError::TooMany));
        assert_eq!(atlas_results(&vec![b' '; MAX_ATLAS_BYTES + 1], &sites()), Err(AtlasError::TooLarge));
    }
}
