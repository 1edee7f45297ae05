//! The changes of a socket's owner to forwarded messages: header edits, and redirects that name the origin's own host.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{LOCATION, SET_COOKIE},
};

use crate::{host::Authority, path::restore_prefix};

/// Header fields to remove, and then to set.
#[derive(Debug, Clone, Default)]
pub struct HeaderEdits {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderEdits {
    /// The edits of these names and values. Invalid names and values are ignored.
    pub fn new<'a>(
        remove: impl IntoIterator<Item = &'a str>,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).ok();
        let field = |(field, value): (&str, &str)| Some((name(field)?, HeaderValue::from_str(value).ok()?));
        let set: Vec<_> = set.into_iter().filter_map(field).collect();
        let mut remove: Vec<_> = remove.into_iter().filter_map(name).collect();
        // A set field replaces existing ones. `Set-Cookie` adds a cookie instead.
        remove.extend(set.iter().map(|(name, _)| name.clone()).filter(|name| *name != SET_COOKIE));
        Self { remove, set }
    }

    /// Whether the edits change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty()
    }

    /// Applies the edits.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.append(name, value.clone());
        }
    }
}

/// The names of an origin, for itself and for its clients.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The `Host` that the origin got.
    pub origin_host: &'a str,
    /// The public scheme and host, with the port.
    pub public: (&'a str, &'a str),
    /// The public path prefix, and its replacement for the origin.
    pub prefixes: (&'a str, &'a str),
}

/// Changes a redirect to the origin's own host into one to the public name. Other redirects stay unchanged.
pub fn public_location(headers: &mut HeaderMap, names: &Names<'_>) {
    let Some(location) = headers.get(LOCATION).and_then(|value| value.to_str().ok()) else { return };
    let after = |scheme: &str| {
        let start = location.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| location.get(scheme.len()..)).flatten()
    };
    let Some(rest) = after("http://").or_else(|| after("https://")).or_else(|| after("//")) else { return };
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let is_own = match (Authority::parse(host.as_bytes()), Authority::parse(names.origin_host.as_bytes())) {
        (Ok(host), Ok(origin_host)) => host.is_same(&origin_host),
        _ => false,
    };
    if !is_own {
        return;
    }
    let (prefix, replacement) = names.prefixes;
    let path = restore_prefix(path, prefix, replacement).unwrap_or_else(|| path.to_owned());
    let (scheme, host) = names.public;
    if let Ok(location) = HeaderValue::try_from([scheme, "://", host, &path].concat()) {
        headers.insert(LOCATION, location);
    }
}

#[cfg(test)]
mod tests {
    use http::header::SERVER;

    use super::*;

    #[test]
    fn fields_are_removed_then_set() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("server", "x"), ("x-a", "1"), ("x-a", "2"), ("x-b", "3"), ("set-cookie", "a=1")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let edits = HeaderEdits::new(
            ["Server", "no name"],
            [("X-A", "4"), ("X-A", "5"), ("X-C", "6"), ("Set-Cookie", "b=2"), ("X-D", "a\r\nb")],
        );
        edits.apply(&mut headers);
        let all = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((all("x-a"), all("x-b"), all("x-c")), (vec!["4", "5"], vec!["3"], vec!["6"]));
        assert_eq!(all("set-cookie"), ["a=1", "b=2"]);
        assert!(!headers.contains_key(SERVER) && !headers.contains_key("x-d"));
        assert!(HeaderEdits::new([], []).is_empty() && !edits.is_empty());
    }

    #[test]
    fn redirects_to_the_origin_lead_to_the_public_name() {
        let moved = |location: &'static str, prefixes: (&str, &str)| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_static(location));
            let names = Names { origin_host: "localhost:3000", public: ("https", "a.example:8443"), prefixes };
            public_location(&mut headers, &names);
            headers[LOCATION].to_str().unwrap().to_owned()
        };
        let plain = ("/", "/");
        for (location, expected) in [
            ("http://localhost:3000/x?y#z", "https://a.example:8443/x?y#z"),
            ("HTTPS://LOCALHOST:3000/x", "https://a.example:8443/x"),
            ("//localhost:3000/x", "https://a.example:8443/x"),
            ("http://localhost:3000", "https://a.example:8443/"),
            ("http://localhost:3001/x", "http://localhost:3001/x"),
            ("http://localhost:3000.evil/x", "http://localhost:3000.evil/x"),
            ("http://localhost:3000@evil/x", "http://localhost:3000@evil/x"),
            ("/x", "/x"),
            ("x", "x"),
            ("https://elsewhere/localhost:3000/", "https://elsewhere/localhost:3000/"),
        ] {
            assert_eq!(moved(location, plain), expected);
        }
        assert_eq!(moved("http://localhost:3000/v2/x", ("/api", "/v2")), "https://a.example:8443/api/x");
        assert_eq!(moved("http://localhost:3000/other", ("/api", "/v2")), "https://a.example:8443/other");
    }
}
