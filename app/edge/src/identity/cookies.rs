//! Our cookies: taken out of what goes to an origin, and put into answers.
//!
//! Their names begin with `__Host-`: a browser takes them from the very host alone, over TLS, and sends them to no other.

use http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};

/// The login at this socket.
pub(super) const LOGIN: &str = "__Host-sallyport";
/// Ties a login that has begun to this browser.
pub(super) const BINDING: &str = "__Host-sallyport-login";

/// What a request carries of ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OurCookies {
    /// The value of [`LOGIN`].
    pub(super) login: Option<String>,
    /// The value of [`BINDING`].
    pub(super) binding: Option<String>,
}

/// Takes our cookies out of a request, and leaves all others. Of a name that comes twice the first one counts.
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

/// What begins the names of our cookies, whatever stands before.
const OUR_NAMES: &[u8] = b"sallyport";

/// Drops the cookies that an origin sets under a name of ours, or one that could be taken for it. Whether there were any.
pub(super) fn drop_ours(headers: &mut HeaderMap) -> bool {
    let is_foreign = |field: &HeaderValue| {
        // What is set without a name is sent back as if its value began with one.
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
    if headers.get_all(SET_COOKIE).iter().all(is_foreign) {
        return false;
    }
    let kept: Vec<_> = headers.get_all(SET_COOKIE).iter().filter(|field| is_foreign(field)).cloned().collect();
    headers.remove(SET_COOKIE);
    kept.into_iter().for_each(|field| {
        headers.append(SET_COOKIE, field);
    });
    true
}

/// A cookie that lasts so long, in seconds; 0 takes it away.
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
    fn a_name_without_a_value_is_no_login() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("__Host-sallyport; a=b"));
        assert_eq!(take(&mut headers), OurCookies::default());
        assert_eq!(headers[COOKIE], "a=b");
    }
}
