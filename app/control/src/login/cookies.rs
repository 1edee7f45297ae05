//! Cookies of the login host: of this host alone, over TLS alone, out of reach of scripts.

use http::{HeaderMap, HeaderValue, header};
use sallyport_identity::LOGIN_SECONDS;
use sallyport_model::AccountId;

use crate::problem::ApiError;

/// A login at a provider that has begun; behind it the beginning of its state.
pub(super) const LOGIN_PREFIX: &str = "__Host-sallyport-to-";
/// Who is logged in at an organisation; behind it the beginning of its id.
pub(super) const SIGN_ON_PREFIX: &str = "__Host-sallyport-sso-";
/// Who has logged out here: the next login asks. Behind it the beginning of the organisation's id.
const LOGGED_OUT_PREFIX: &str = "__Host-sallyport-out-";
/// How long a browser remembers that somebody has logged out, in seconds.
const LOGGED_OUT_SECONDS: i64 = 30 * 24 * 3_600;
/// How many characters of a state or an id a cookie's name has.
const NAME_CHARS: usize = 12;
/// How many logins may have begun in one browser at once; one more begins anew.
pub(super) const MAX_BEGUN_LOGINS: usize = 5;
/// How many cookies of a request are looked at.
const MAX_COOKIES: usize = 200;

/// The cookies of a request with their values, in their order.
pub(super) fn all(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    // A cookie that is no text takes none of the others along.
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| std::str::from_utf8(pair).ok()?.trim().split_once('='))
        .take(MAX_COOKIES)
}

/// The value of the cookie with this name; `None` too when there are two, one of which somebody else has set.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = all(headers).filter(|(found, _)| *found == name).map(|(_, value)| value);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The name of the cookie of a login with this state.
pub(super) fn login_name(state: &str) -> String {
    format!("{LOGIN_PREFIX}{}", state.get(..NAME_CHARS).unwrap_or_default())
}

/// The name of the cookie of who is logged in at this organisation.
pub(super) fn sign_on_name(organisation: AccountId) -> String {
    of_organisation(SIGN_ON_PREFIX, organisation)
}

/// The name of the cookie of who has logged out of this organisation's services.
pub(super) fn logged_out_name(organisation: AccountId) -> String {
    of_organisation(LOGGED_OUT_PREFIX, organisation)
}

fn of_organisation(prefix: &str, organisation: AccountId) -> String {
    let id = organisation.uuid().simple().to_string();
    format!("{prefix}{}", &id[..NAME_CHARS])
}

/// Sets the cookie of who has logged out.
pub(super) fn logged_out(organisation: AccountId) -> Result<HeaderValue, ApiError> {
    set(&logged_out_name(organisation), "1", &format!("; Max-Age={LOGGED_OUT_SECONDS}"))
}

/// Sets a cookie of a login that has begun.
pub(super) fn begun(state: &str, value: &str) -> Result<HeaderValue, ApiError> {
    set(&login_name(state), value, &format!("; Max-Age={LOGIN_SECONDS}"))
}

/// Sets the cookie of who is logged in; it goes when the browser is closed.
pub(super) fn signed_on(organisation: AccountId, value: &str) -> Result<HeaderValue, ApiError> {
    set(&sign_on_name(organisation), value, "")
}

/// Takes a cookie away.
pub(super) fn gone(name: &str) -> Result<HeaderValue, ApiError> {
    set(name, "", "; Max-Age=0")
}

fn set(name: &str, value: &str, more: &str) -> Result<HeaderValue, ApiError> {
    let cookie = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{more}");
    HeaderValue::from_str(&cookie).map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_is_there_twice_is_none() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; b=2;c=3"));
        headers.append(header::COOKIE, HeaderValue::from_static("a=4"));
        assert_eq!((one(&headers, "a"), one(&headers, "b"), one(&headers, "c")), (None, Some("2"), Some("3")));
        assert_eq!(one(&headers, "d"), None);
        headers.append(header::COOKIE, HeaderValue::from_bytes(b"x=\xff; e=5").unwrap());
        assert_eq!((one(&headers, "e"), one(&headers, "x")), (Some("5"), None));
    }
}
