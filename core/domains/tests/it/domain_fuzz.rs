//! What the fuzzer does with its bytes: they are a domain name, as a person writes it. It also lives in `fuzz/`.

use sallyport_domains::{MAX_PROOF_NAMES, parse_domain, proof_names};

/// The domain of the installation.
const OWN: &str = "tunnels.test";

/// A name that is accepted is one that an organisation can have, and reads as itself.
pub(crate) fn domain_name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(name) = parse_domain(text, OWN) else { return };
    let shown = name.to_string();
    assert_eq!(parse_domain(&shown, OWN).unwrap(), name);
    assert_eq!(shown, shown.to_ascii_lowercase());
    assert!(shown.is_ascii() && shown.len() <= 253 && !shown.ends_with('.'));
    assert!(name.base() != OWN && !name.base().ends_with(&format!(".{OWN}")), "{shown}");
    assert!(name.base().contains('.') && !name.base().contains('*'), "{shown}");
    assert!(name.base().parse::<std::net::IpAddr>().is_err(), "{shown}");
    let places = proof_names(&name);
    assert!((1..=MAX_PROOF_NAMES).contains(&places.len()), "{places:?}");
    assert!(places.iter().all(|place| place.starts_with("_sallyport.")), "{places:?}");
}
