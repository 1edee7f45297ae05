//! Property of any logout token: it is accepted only with the provider's signature.

use std::sync::LazyLock;

use jsonwebtoken::jwk::Jwk;
use sallyport_identity::verify_logout_token;

/// The time at which the tokens of the corpus are valid, in seconds since 1970 (UTC).
const NOW: i64 = 1_800_000_000;

/// The provider's key. Its private half signed the corpus once, and was deleted.
static KEY: LazyLock<Jwk> = LazyLock::new(|| {
    serde_json::from_str(
        r#"{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "k",
            "x": "s5BAf3wMdzPo3JnWLpSdAwF4Aq4uvKtbWoYiuGtoXas", "y": "Vvz-EdhsBza0nXAQKOU87viY2XCpJ1qycToY5w99_a0"}"#,
    )
    .expect("the key is one")
});

/// Whether this token is accepted.
///
/// # Panics
/// Another token than the single valid one of the corpus is accepted.
pub(crate) fn logout_token_input(data: &[u8]) -> bool {
    let Ok(token) = std::str::from_utf8(data) else { return false };
    let Ok(logout) = verify_logout_token(token, std::slice::from_ref(&KEY), "https://id.test", "c", NOW) else {
        return false;
    };
    assert_eq!(
        (logout.subject.as_deref(), logout.sid.as_deref()),
        (Some("1"), Some("s")),
        "a forged token is believed"
    );
    true
}
