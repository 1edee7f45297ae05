//! Sealed login state, and the verification of identities.
//!
//! A browser carries sealed texts between the edges and the login host, in cookies and redirects. A sealed text is
//! encrypted, and bound to a purpose so that none passes for another. Times are checked against an argument `now`, and
//! random numbers are arguments. The crate also verifies tokens of identity providers and derives the person from them.
//! Origins can verify an [`Assertion`], which an [`AssertionKey`] signs.

mod assertion;
mod hook;
mod id_token;
mod login_state;
mod logout_token;
mod person;
mod seal;
mod session_validation;
mod totp;

pub use assertion::{ASSERTION_SECONDS, Assertion, AssertionKey, MAX_HEADER_GROUPS_BYTES, header_groups, header_text};
pub use hook::hook_signature;
pub use id_token::{Expected, IdTokenError, MAX_ID_TOKEN_BYTES, MAX_KEYS, PROVIDER_LEEWAY_SECONDS, verify_id_token};
pub use login_state::{
    Binding, CLOCK_LEEWAY_SECONDS, GRANT_SECONDS, Grant, LOGIN_SECONDS, LoginRequest, LogoutRequest,
    MAX_RETURN_TO_BYTES, SignOn, SocketCookie, safe_return_to,
};
pub use logout_token::{LogoutToken, LogoutTokenError, MAX_SID_BYTES, session_of, verify_logout_token};
pub use person::{Claims, PersonError, has_groups, join_groups, person};
pub use seal::{MAX_STORED_BYTES, NONCE_BYTES, Purpose, Sealer};
pub use session_validation::{SessionRejected, ends_at, validate_session};
pub use totp::{
    TOTP_DIGITS, TOTP_SECRET_BYTES, TOTP_STEP_SECONDS, TOTP_WINDOW_STEPS, base32, otpauth_uri, totp, totp_step_of,
};
