//! The edge's own cookies: removed from requests to origins, and set in responses.
//!
//! Their names begin with `__Host-`: browsers accept such cookies only over TLS, from and for one host (RFC 6265bis).

use http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, HeaderName, SET_COOKIE},
};

/// The field that lists what a browser deletes (W3C Clear Site Data section 3.1).
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// The login at this socket.
pub(super) const LOGIN: &str = "__Host-sallyport";
/// Ties a login that has begun to this browser.
pub(super) const BINDING: &str = "__Host-sallyport-login";

/// The edge's own cookies in a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OurCookies {
    /// The value of [`LOGIN`].
    pub(super) login: Option<String>,
    /// The value of [`BINDING`].
    pub(super) binding: Option<String>,
}

/// Removes the edge's own cookies from a request, and leaves all others. If a name occurs twice, the first counts.
pub(super) fn take(headers: &mut HeaderMap) -> OurCookies {
    let mut ours = OurCookies::default();
    if !headers.get_all(COOKIE).iter().any(|field| pairs(field).any(|pair| is_ours(name_of(pair)))) {
        return ours;
    }
    let fields: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for field in fields {
        for pair in pairs(&field).filter(|pair| is_ours(name_of(pair))) {
            let value = pair.get(name_of(pair).len() + 1..).and_then(|value| std::str::from_utf8(value).ok());
            let place = if name_of(pair) == LOGIN.as_bytes() { &mut ours.login } else { &mut ours.binding };
            if place.is_none() {
                *place = value.map(str::to_owned);
            }
        }
        let rest = pairs(&field).filter(|pair| !is_ours(name_of(pair))).collect::<Vec<_>>().join(&b"; "[..]);
        if let Some(rest) = HeaderValue::from_bytes(&rest).ok().filter(|rest| !rest.is_empty()) {
            headers.append(COOKIE, rest);
        }
    }
    ours
}

fn pairs(field: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    field.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

fn name_of(pair: &[u8]) -> &[u8] {
    pair.split(|byte| *byte == b'=').next().unwrap_or_default()
}

fn is_ours(name: &[u8]) -> bool {
    name == LOGIN.as_bytes() || name == BINDING.as_bytes()
}

/// The start of the edge's own cookie names, after any prefix.
const OUR_NAMES: &[u8] = b"sallyport";

/// Drops cookies of an origin under the edge's own names, and under names that browsers could confuse with them.
/// Returns whether there were any.
pub(super) fn drop_ours(headers: &mut HeaderMap) -> bool {
    let is_foreign = |field: &HeaderValue| {
        // A browser returns a nameless cookie by its value alone, which could look like a name.
        let start = field.as_bytes().trim_ascii_start();
        let mut name = &start[start.iter().take_while(|byte| **byte == b'=' || byte.is_ascii_whitespace()).count()..];
        for prefix in [&b"__host-"[..], b"__secure-", b"__http-", b"__host-http-"] {
            match name.split_at_checked(prefix.len()) {
                Some((head, rest)) if head.eq_ignore_ascii_case(prefix) => name = rest,
                _ => {}
            }
        }
        !name.get(..OUR_NAMES.len()).is_some_and(|head| head.eq_ignore_ascii_case(OUR_NAMES))
    };
    keep_cookies(headers, is_foreign)
}

/// Keeps the `Set-Cookie` fields that `is_kept` accepts. Returns whether any was dropped.
fn keep_cookies(headers: &mut HeaderMap, is_kept: impl Fn(&HeaderValue) -> bool) -> bool {
    if headers.get_all(SET_COOKIE).iter().all(&is_kept) {
        return false;
    }
    let kept: Vec<_> = headers.get_all(SET_COOKIE).iter().filter(|field| is_kept(field)).cloned().collect();
    headers.remove(SET_COOKIE);
    kept.into_iter().for_each(|field| {
        headers.append(SET_COOKIE, field);
    });
    true
}

/// Drops from a response what would reach beyond the socket's own host, `host`. Browsers accept cookies with a wider
/// `Domain`, and apply `Clear-Site-Data: "cookies"` to the whole domain. Returns whether anything was dropped.
pub(super) fn keep_to_own_host(headers: &mut HeaderMap, host: &str) -> bool {
    let cookies = keep_cookies(headers, |field| is_for(host, field));
    drop_clearing(headers) || cookies
}

/// Whether a cookie is for this host alone. A `Domain` that is no valid name is refused too, because browsers differ in
/// reading it (RFC 6265 section 5.2.3 ignores one leading dot).
fn is_for(host: &str, field: &HeaderValue) -> bool {
    field.as_bytes().split(|byte| *byte == b';').skip(1).all(|attribute| {
        let name = name_of(attribute);
        if !name.trim_ascii().eq_ignore_ascii_case(b"domain") {
            return true;
        }
        let value = attribute.get(name.len() + 1..).unwrap_or_default().trim_ascii();
        let value = value.strip_prefix(b".").unwrap_or(value);
        value.is_empty() || value.eq_ignore_ascii_case(host.as_bytes())
    })
}

/// Drops `"cookies"` and `"*"` from Clear-Site-Data, and keeps what concerns the socket's own origin.
fn drop_clearing(headers: &mut HeaderMap) -> bool {
    if !headers.contains_key(CLEAR_SITE_DATA) {
        return false;
    }
    let is_own = |directive: &&[u8]| {
        let text = directive.to_ascii_lowercase();
        !text.windows(b"cookies".len()).any(|part| part == b"cookies") && !text.iter().any(|byte| b"*\\".contains(byte))
    };
    let fields = headers.get_all(CLEAR_SITE_DATA).iter().map(HeaderValue::as_bytes);
    let all = fields.collect::<Vec<_>>().join(&b", "[..]);
    let directives: Vec<&[u8]> = all.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let kept: Vec<&[u8]> = directives.iter().copied().filter(is_own).collect();
    if kept.len() == directives.len() {
        return false;
    }
    headers.remove(CLEAR_SITE_DATA);
    if let Some(kept) = HeaderValue::from_bytes(&kept.join(&b", "[..])).ok().filter(|kept| !kept.is_empty()) {
        headers.insert(CLEAR_SITE_DATA, kept);
    }
    true
}

/// A cookie with this lifetime in seconds; 0 deletes it.
pub(super) fn set(name: &str, value: &str, seconds: i64) -> Option<HeaderValue> {
    let cookie = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    let mut value = HeaderValue::try_from(cookie).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_taken_out_and_nothing_else() {
        let mut headers = HeaderMap::new();
        for field in [
            "a=1; __Host-sallyport=one;b=2",
            "__Host-sallyport=two; __Host-sallyport-login=three",
            "__Host-sallyport-affinity=kept; x__Host-sallyport=kept; __host-sallyport=kept; odd",
        ] {
            headers.append(COOKIE, HeaderValue::from_static(field));
        }
        let ours = take(&mut headers);
        assert_eq!(ours, OurCookies { login: Some("one".into()), binding: Some("three".into()) });
        let rest: Vec<_> = headers.get_all(COOKIE).iter().map(|field| field.to_str().unwrap()).collect();
        assert_eq!(
            rest,
            ["a=1; b=2", "__Host-sallyport-affinity=kept; x__Host-sallyport=kept; __host-sallyport=kept; odd"]
        );
        assert_eq!(take(&mut headers), OurCookies::default());
    }

    #[test]
    fn an_origin_sets_its_own_cookies_alone() {
        let mut headers = HeaderMap::new();
        for field in [
            "id=1; Path=/",
            "__Host-sallyport=forged; Path=/; Secure",
            "__host-Sallyport-login=forged",
            "__Secure-sallyport=x",
            " =__Host-sallyport=nameless",
            "sallyport-anything=x",
            "my-sallyport=kept",
            "__Host-session=kept",
        ] {
            headers.append(SET_COOKIE, HeaderValue::from_static(field));
        }
        assert!(drop_ours(&mut headers));
        let kept: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        assert_eq!(kept, ["id=1; Path=/", "my-sallyport=kept", "__Host-session=kept"]);
        assert!(!drop_ours(&mut headers));
    }

    #[test]
    fn an_origin_sets_cookies_for_its_own_host_alone() {
        let host = "app.example.com";
        let kept = [
            "id=1; Path=/",
            "a=domain=x",
            "own=1; Domain=app.example.com",
            "dot=1; domain = .APP.Example.com;",
            "e=1; Domain=",
        ];
        let mut headers = HeaderMap::new();
        for field in kept {
            headers.append(SET_COOKIE, HeaderValue::from_static(field));
        }
        assert!(!keep_to_own_host(&mut headers, host));
        for field in [
            "w=1; Domain=example.com",
            "w=1; Domain=app.example.com; DOMAIN\t= .example.com",
            "w=1; domain=login.example.com; Path=/",
            "w=1;Domain=exa%6dple.com",
            "w=1; Domain=..example.com",
            "w=1; Domain=other.app.example.com",
            "; Domain=example.com",
        ] {
            headers.append(SET_COOKIE, HeaderValue::from_static(field));
        }
        assert!(keep_to_own_host(&mut headers, host));
        assert!(headers.get_all(SET_COOKIE).iter().eq(kept.iter()));
        assert!(!keep_to_own_host(&mut headers, host));
    }

    #[test]
    fn an_origin_has_browsers_forget_what_is_its_own_alone() {
        for (fields, left) in [
            (&["\"cache\", \"storage\""][..], Some("\"cache\", \"storage\"")),
            (&["\"clientHints\""], Some("\"clientHints\"")),
            (&["\"cookies\""], None),
            (&["\"*\""], None),
            (&["\"cache\",\"cookies\" , \"storage\""], Some("\"cache\", \"storage\"")),
            (&["\"cache\"", "\"Cookies\"", "\"*\""], Some("\"cache\"")),
            (&["\"c\\ookies\""], None),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(CLEAR_SITE_DATA, HeaderValue::from_static(field));
            }
            let has_changed = keep_to_own_host(&mut headers, "app.example.com");
            let now: Vec<_> = headers.get_all(CLEAR_SITE_DATA).iter().map(|field| field.to_str().unwrap()).collect();
            assert_eq!(now, left.into_iter().collect::<Vec<_>>(), "{fields:?}");
            assert_eq!(has_changed, now != fields, "{fields:?}");
        }
    }

    #[test]
    fn a_name_without_a_value_is_no_login() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("__Host-sallyport; a=b"));
        assert_eq!(take(&mut headers), OurCookies::default());
        assert_eq!(headers[COOKIE], "a=b");
    }
}
