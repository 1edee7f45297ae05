//! Cookies of the login host, which browsers keep to this host, to TLS, and away from scripts.

use http::{HeaderMap, HeaderValue, header};
use sallyport_identity::LOGIN_SECONDS;
use sallyport_model::AccountId;

use crate::problem::ApiError;

/// The prefix of the cookie of a login at a provider in progress, followed by the beginning of its state.
pub(super) const LOGIN_PREFIX: &str = "__Host-sallyport-to-";
/// The prefix of the cookie of a login at an organisation, followed by the beginning of the organisation's id.
pub(super) const SIGN_ON_PREFIX: &str = "__Host-sallyport-sso-";
/// The prefix of the cookie of a logout, followed by the beginning of the organisation's id. The next login then asks
/// the person.
const LOGGED_OUT_PREFIX: &str = "__Host-sallyport-out-";
/// How long a browser remembers a logout, in seconds.
const LOGGED_OUT_SECONDS: i64 = 30 * 24 * 3_600;
/// How many characters of a state or id are in a cookie's name.
const NAME_CHARS: usize = 12;
/// How many logins may be in progress in one browser.
pub(super) const MAX_BEGUN_LOGINS: usize = 5;
/// How many cookies of a request are read.
const MAX_COOKIES: usize = 200;

/// The cookies of a request, in order.
pub(super) fn all(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    // A cookie that is no text does not affect the others.
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| std::str::from_utf8(pair).ok()?.trim().split_once('='))
        .take(MAX_COOKIES)
}

/// The value of the cookie with this name; `None` also if there are two, because an attacker may have set one.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = all(headers).filter(|(found, _)| *found == name).map(|(_, value)| value);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The name of the cookie of a login with this state.
pub(super) fn login_name(state: &str) -> String {
    format!("{LOGIN_PREFIX}{}", state.get(..NAME_CHARS).unwrap_or_default())
}

/// The name of the cookie of a login at this organisation.
pub(super) fn sign_on_name(organisation: AccountId) -> String {
    of_organisation(SIGN_ON_PREFIX, organisation)
}

/// The name of the cookie of a logout from this organisation's services.
pub(super) fn logged_out_name(organisation: AccountId) -> String {
    of_organisation(LOGGED_OUT_PREFIX, organisation)
}

fn of_organisation(prefix: &str, organisation: AccountId) -> String {
    let id = organisation.uuid().simple().to_string();
    format!("{prefix}{}", &id[..NAME_CHARS])
}

/// Sets the cookie of a logout.
pub(super) fn logged_out(organisation: AccountId) -> Result<HeaderValue, ApiError> {
    set(&logged_out_name(organisation), "1", &format!("; Max-Age={LOGGED_OUT_SECONDS}"))
}

/// Sets the cookie of a login in progress.
pub(super) fn begun(state: &str, value: &str) -> Result<HeaderValue, ApiError> {
    set(&login_name(state), value, &format!("; Max-Age={LOGIN_SECONDS}"))
}

/// Sets the cookie of a login, until the browser is closed.
pub(super) fn signed_on(organisation: AccountId, value: &str) -> Result<HeaderValue, ApiError> {
    set(&sign_on_name(organisation), value, "")
}

/// Deletes a cookie.
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
