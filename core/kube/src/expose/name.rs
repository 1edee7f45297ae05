//! Names of sockets.

use sallyport_model::{DisplayName, MAX_DISPLAY_NAME_CHARS};

/// The name of the socket of an object: `k8s NAMESPACE.NAME`, and the port behind it if there are several.
pub(super) fn name(namespace: &str, object: &str, port: Option<&str>) -> DisplayName {
    let whole = match port {
        None => format!("k8s {namespace}.{object}"),
        Some(port) => format!("k8s {namespace}.{object} {port}"),
    };
    fitting(&whole)
}

/// A name with a word behind it.
pub(crate) fn with_word(name: &DisplayName, word: &str) -> DisplayName {
    fitting(&format!("{name} {word}"))
}

/// The name, cut to the most characters of a name, with a hash of the whole in place of its end.
fn fitting(whole: &str) -> DisplayName {
    if let Ok(name) = whole.parse() {
        return name;
    }
    let clean: String = whole.chars().map(|c| if sallyport_model::misleads(c) { '-' } else { c }).collect();
    let hash = format!(" {:08x}", hash(whole));
    let kept: String = clean.chars().take(MAX_DISPLAY_NAME_CHARS - hash.len()).collect();
    let cut = format!("{}{hash}", kept.trim_end());
    cut.parse().or_else(|_| format!("k8s{hash}").parse()).unwrap_or_else(|_| unreachable!("the name is plain"))
}

/// FNV-1a, which stays the same in all versions.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_article_and_long_ones_are_cut_with_a_hash() {
        assert_eq!(name("default", "web", None).as_str(), "k8s default.web");
        assert_eq!(name("default", "web", Some("metrics")).as_str(), "k8s default.web metrics");
        let long = "x".repeat(63);
        let (one, other) = (name(&long, &long, Some("a")), name(&long, &long, Some("b")));
        assert_ne!(one, other);
        assert_eq!(one.as_str().chars().count(), MAX_DISPLAY_NAME_CHARS);
        assert_eq!(one, name(&long, &long, Some("a")));
        assert!(name("a\u{202e}b", "\n", None).as_str().starts_with("k8s a-b.-"));
    }
}
