//! What the fuzzer does with its bytes: they are a file of results. It also lives in `fuzz/`.

use std::collections::BTreeSet;

use sallyport_catchment::{MAX_CLIENT_ROUND_TRIP, SiteNames, Source, atlas_results};

/// What is read has one row for each network and site, with believable times.
pub(crate) fn atlas_result(data: &[u8]) {
    let edges = [("eu-1".to_owned(), "eu".parse().unwrap()), ("us-1".to_owned(), "us".parse().unwrap())];
    let rules = ["fra=eu", "198.51.100.0/24=ap", "2001:db8::/32=sa"];
    let sites = SiteNames::new(edges, rules.iter().map(|rule| rule.parse().unwrap()).collect());
    let read = match atlas_results(data, &sites) {
        Ok(read) => read,
        Err(error) => return assert!(!error.to_string().contains('\n')),
    };
    assert!(!read.rows.is_empty() && read.skipped < read.results);
    let mut keys = BTreeSet::new();
    for row in &read.rows {
        assert!(keys.insert((row.prefix, row.site.clone())), "{row:?} is there twice");
        assert_eq!((row.source, row.system, row.country), (Source::Atlas, None, None));
        assert!(["eu", "us", "ap", "sa"].contains(&row.site.as_str()));
        assert!(row.requests <= read.results as u64 && row.seen >= 0);
        assert!(row.round_trip.is_none_or(|time| !time.is_zero() && time <= MAX_CLIENT_ROUND_TRIP));
        assert!(row.requests > 0 || row.round_trip.is_some());
    }
}
