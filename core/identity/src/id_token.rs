//! Verification of ID tokens (OpenID Connect Core 1.0 section 3.1.3.7).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use crate::person::Claims;

/// The longest accepted ID token, in bytes.
pub const MAX_ID_TOKEN_BYTES: usize = 65_536;
/// The most keys of a provider.
pub const MAX_KEYS: usize = 64;
/// Tolerance for the provider's clock, in seconds.
pub const PROVIDER_LEEWAY_SECONDS: i64 = 120;
/// The greatest age of an ID token, in seconds: a token is issued for the login that has just returned.
pub(crate) const MAX_AGE_SECONDS: i64 = 600;
/// The shortest RSA key, in bytes of its modulus (NIST SP 800-131A).
const MIN_RSA_BYTES: usize = 256;

/// The expected claims of an ID token.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// The audience.
    pub client_id: &'a str,
    /// The nonce of the login; `None` for a token obtained with a refresh token (OpenID Connect Core 1.0 section 12.2).
    pub nonce: Option<&'a str>,
    /// The current time in seconds since 1970 (UTC).
    pub now: i64,
}

/// Reason why an ID token is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    /// The token is malformed.
    #[error("the provider's ID token is malformed")]
    Malformed,
    /// The algorithm is `none`, a shared secret, or unknown.
    #[error("the provider's ID token is signed with {0}, which is not accepted")]
    Algorithm(String),
    /// No known key of the provider has signed the token; there may be newer keys.
    #[error("the provider's ID token is signed with a key that the provider does not have")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the provider's ID token is wrong")]
    Signature,
    /// A claim is missing or has another value than expected.
    #[error("the provider's ID token has a wrong `{0}`")]
    Claim(&'static str),
    /// The token is too old, or its time is in the future.
    #[error("the provider's ID token is not valid now: check the clocks, here and there")]
    Time,
}

/// Verifies a token, and returns its claims.
///
/// # Errors
/// The reason of the rejection. On [`IdTokenError::UnknownKey`] the caller may retry with newer keys.
pub fn verify_id_token(token: &str, keys: &[Jwk], expected: Expected<'_>) -> Result<Claims, IdTokenError> {
    let claims = signed_claims(token, keys)?;
    check(&claims, expected)?;
    Ok(claims)
}

/// The claims of a token that one of these keys has signed, without checking the claims.
pub(crate) fn signed_claims(token: &str, keys: &[Jwk]) -> Result<Claims, IdTokenError> {
    if token.len() > MAX_ID_TOKEN_BYTES {
        return Err(IdTokenError::Malformed);
    }
    let (algorithm, key_id) = header(token)?;
    let candidates: Vec<&Jwk> = keys
        .iter()
        .take(MAX_KEYS)
        .filter(|key| is_for(key, algorithm))
        .filter(|key| key_id.as_deref().is_none_or(|id| key.common.key_id.as_deref() == Some(id)))
        .collect();
    // Without a key id any of the keys may have signed the token; with one there is only one candidate.
    if candidates.is_empty() {
        return Err(IdTokenError::UnknownKey);
    }
    let mut validation = Validation::new(algorithm);
    // The claims are compared below, more strictly and with `now`.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let claims = candidates.into_iter().find_map(|key| {
        let key = DecodingKey::from_jwk(key).ok()?;
        jsonwebtoken::decode::<Claims>(token, &key, &validation).ok()
    });
    Ok(claims.ok_or(IdTokenError::Signature)?.claims)
}

/// The algorithm, if it uses public keys, and the key id.
fn header(token: &str) -> Result<(Algorithm, Option<String>), IdTokenError> {
    // Decoded by hand first: the library cannot represent the header of an unsigned token.
    let raw = token.split('.').next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let raw: Claims = raw.and_then(|raw| serde_json::from_slice(&raw).ok()).ok_or(IdTokenError::Malformed)?;
    let named = raw.get("alg").and_then(Value::as_str).ok_or(IdTokenError::Malformed)?;
    if raw.contains_key("crit") {
        return Err(IdTokenError::Malformed);
    }
    let algorithm = match named {
        "RS256" => Algorithm::RS256,
        "RS384" => Algorithm::RS384,
        "RS512" => Algorithm::RS512,
        "PS256" => Algorithm::PS256,
        "PS384" => Algorithm::PS384,
        "PS512" => Algorithm::PS512,
        "ES256" => Algorithm::ES256,
        "ES384" => Algorithm::ES384,
        "EdDSA" => Algorithm::EdDSA,
        other => {
            return Err(IdTokenError::Algorithm(other.chars().filter(|c| c.is_ascii_graphic()).take(32).collect()));
        }
    };
    Ok((algorithm, raw.get("kid").and_then(Value::as_str).map(str::to_owned)))
}

/// Whether the key fits this algorithm: family, curve, use for signatures, and length.
fn is_for(key: &Jwk, algorithm: Algorithm) -> bool {
    let is_family = match (&key.algorithm, algorithm) {
        (
            AlgorithmParameters::RSA(rsa),
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512,
        ) => URL_SAFE_NO_PAD.decode(&rsa.n).is_ok_and(|modulus| modulus.len() >= MIN_RSA_BYTES),
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES256) => curve.curve == EllipticCurve::P256,
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES384) => curve.curve == EllipticCurve::P384,
        (AlgorithmParameters::OctetKeyPair(curve), Algorithm::EdDSA) => curve.curve == EllipticCurve::Ed25519,
        _ => false,
    };
    let is_signing = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let is_algorithm = key
        .common
        .key_algorithm
        .is_none_or(|named| named.to_string().parse::<Algorithm>().is_ok_and(|named| named == algorithm));
    is_family && is_signing && is_algorithm
}

fn check(claims: &Claims, expected: Expected<'_>) -> Result<(), IdTokenError> {
    check_parties(claims, expected.issuer, expected.client_id)?;
    if let Some(expected) = expected.nonce {
        let claim = claims.get("nonce").and_then(Value::as_str);
        let is_nonce = claim.is_some_and(|nonce| bool::from(nonce.as_bytes().ct_eq(expected.as_bytes())));
        if expected.is_empty() || !is_nonce {
            return Err(IdTokenError::Claim("nonce"));
        }
    }
    check_times(claims, expected.now)
}

/// Checks issuer and audience.
pub(crate) fn check_parties(claims: &Claims, issuer: &str, client_id: &str) -> Result<(), IdTokenError> {
    if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
        return Err(IdTokenError::Claim("iss"));
    }
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !audiences.contains(&client_id) {
        return Err(IdTokenError::Claim("aud"));
    }
    // A token for several audiences must name this client as the authorised party.
    let is_party = match claims.get("azp") {
        None | Some(Value::Null) => audiences.len() == 1,
        Some(party) => party.as_str() == Some(client_id),
    };
    if is_party { Ok(()) } else { Err(IdTokenError::Claim("azp")) }
}

/// Checks that the token was issued just now and has not expired.
pub(crate) fn check_times(claims: &Claims, now: i64) -> Result<(), IdTokenError> {
    let time = |name: &'static str| {
        let value = claims.get(name).ok_or(IdTokenError::Claim(name))?;
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and no such time is valid")]
        value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64)).ok_or(IdTokenError::Claim(name))
    };
    let (expires, issued) = (time("exp")?, time("iat")?);
    let is_now = now < expires.saturating_add(PROVIDER_LEEWAY_SECONDS)
        && issued <= now.saturating_add(PROVIDER_LEEWAY_SECONDS)
        && now <= issued.saturating_add(MAX_AGE_SECONDS + PROVIDER_LEEWAY_SECONDS);
    let has_begun = match claims.get("nbf") {
        None => true,
        Some(_) => time("nbf")? <= now.saturating_add(PROVIDER_LEEWAY_SECONDS),
    };
    if is_now && has_begun { Ok(()) } else { Err(IdTokenError::Time) }
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
    };
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    pub(crate) struct Signer {
        pair: EcdsaKeyPair,
        id: &'static str,
    }

    impl Signer {
        pub(crate) fn new(id: &'static str) -> Self {
            Self { pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), id }
        }

        pub(crate) fn jwk(&self) -> Jwk {
            let point = self.pair.public_key().as_ref();
            let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let jwk = json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "alg": "ES256",
                             "x": part(&point[1..33]), "y": part(&point[33..])});
            serde_json::from_value(jwk).unwrap()
        }

        pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
            let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
            let text = format!("{}.{}", part(header), part(claims));
            let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://id.test", "aud": "c", "sub": "1", "nonce": "n", "iat": NOW, "exp": NOW + 300})
    }

    fn verify_at(token: &str, keys: &[Jwk], now: i64) -> Result<Claims, IdTokenError> {
        let expected = Expected { issuer: "https://id.test", client_id: "c", nonce: Some("n"), now };
        verify_id_token(token, keys, expected)
    }

    fn header() -> Value {
        json!({"alg": "ES256", "kid": "k"})
    }

    #[test]
    fn a_token_that_says_what_it_must_is_believed_and_no_other() {
        let signer = Signer::new("k");
        let keys = [signer.jwk()];
        let verify = |claims: Value| verify_at(&signer.sign(&header(), &claims), &keys, NOW).map(|_| ());
        assert_eq!(verify(claims()), Ok(()));
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            claims
        };
        for (name, value, wrong) in [
            ("iss", json!("https://id.test/"), "iss"),
            ("iss", json!("https://evil.test"), "iss"),
            ("iss", json!(["https://id.test"]), "iss"),
            ("aud", json!("other"), "aud"),
            ("aud", json!([]), "aud"),
            ("aud", json!(["other"]), "aud"),
            ("aud", json!(["c", "other"]), "azp"),
            ("azp", json!("other"), "azp"),
            ("azp", json!(1), "azp"),
            ("nonce", json!("m"), "nonce"),
            ("nonce", json!(null), "nonce"),
            ("exp", json!("soon"), "exp"),
            ("iat", json!(null), "iat"),
        ] {
            assert_eq!(verify(with(name, value.clone())), Err(IdTokenError::Claim(wrong)), "{name}: {value}");
        }
        let mut several = with("aud", json!(["c", "other"]));
        several["azp"] = json!("c");
        assert_eq!(verify(several), Ok(()));
        for missing in ["iss", "aud", "nonce", "exp", "iat"] {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove(missing);
            assert_eq!(verify(claims), Err(IdTokenError::Claim(missing)));
        }
    }

    #[test]
    fn a_token_that_came_with_a_refresh_needs_no_nonce_and_all_else() {
        let signer = Signer::new("k");
        let verify = |name: &str, value: Value| {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove("nonce");
            claims[name] = value;
            let expected = Expected { issuer: "https://id.test", client_id: "c", nonce: None, now: NOW };
            verify_id_token(&signer.sign(&header(), &claims), &[signer.jwk()], expected).map(|_| ())
        };
        assert_eq!(verify("sub", json!("1")), Ok(()));
        assert_eq!(verify("aud", json!("d")), Err(IdTokenError::Claim("aud")));
        assert_eq!(verify("exp", json!(NOW - 600)), Err(IdTokenError::Time));
    }

    #[test]
    fn clocks_may_be_a_little_apart() {
        let signer = Signer::new("k");
        let (keys, token) = ([signer.jwk()], signer.sign(&header(), &claims()));
        for now in [NOW - 120, NOW, NOW + 300, NOW + 419] {
            assert!(verify_at(&token, &keys, now).is_ok(), "{}", now - NOW);
        }
        for now in [NOW - 121, NOW + 420, NOW + 100_000, i64::MAX, i64::MIN] {
            assert_eq!(verify_at(&token, &keys, now), Err(IdTokenError::Time), "{}", now.saturating_sub(NOW));
        }
        let mut eternal = claims();
        eternal["exp"] = json!(i64::MAX);
        let eternal = signer.sign(&header(), &eternal);
        assert_eq!(verify_at(&eternal, &keys, NOW + 721), Err(IdTokenError::Time), "an old one, however long it says");
        let mut later = claims();
        later["nbf"] = json!(NOW + 121);
        assert_eq!(verify_at(&signer.sign(&header(), &later), &keys, NOW), Err(IdTokenError::Time));
    }

    #[test]
    fn another_algorithm_is_no_way_around_the_key() {
        let signer = Signer::new("k");
        let keys = [signer.jwk()];
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let unsigned = |alg: &str, signature: &str| {
            format!("{}.{}.{signature}", part(&json!({"alg": alg, "kid": "k"})), part(&claims()))
        };
        for alg in ["none", "None", "NONE", "nOnE", "HS256", "HS512", "", "ES512"] {
            let refused = verify_at(&unsigned(alg, ""), &keys, NOW).unwrap_err();
            assert!(matches!(refused, IdTokenError::Algorithm(_)), "{alg}: {refused}");
        }
        // The public key as a shared secret, in the forms that have fooled libraries.
        let point = signer.pair.public_key().as_ref().to_vec();
        let jwk = serde_json::to_vec(&keys[0]).unwrap();
        for secret in [point, jwk] {
            let text = format!("{}.{}", part(&json!({"alg": "HS256", "kid": "k"})), part(&claims()));
            let key = jsonwebtoken::EncodingKey::from_secret(&secret);
            let signature = jsonwebtoken::crypto::sign(text.as_bytes(), &key, Algorithm::HS256).unwrap();
            let refused = verify_at(&format!("{text}.{signature}"), &keys, NOW).unwrap_err();
            assert_eq!(refused, IdTokenError::Algorithm("HS256".to_owned()));
        }
        // A shared secret among the provider's keys is ignored.
        let shared: Jwk = serde_json::from_value(json!({"kty": "oct", "k": "AAAA", "kid": "k"})).unwrap();
        assert_eq!(verify_at(&signer.sign(&header(), &claims()), &[shared], NOW), Err(IdTokenError::UnknownKey));
        let critical = signer.sign(&json!({"alg": "ES256", "kid": "k", "crit": ["x"]}), &claims());
        assert_eq!(verify_at(&critical, &keys, NOW), Err(IdTokenError::Malformed));
        assert!(matches!(verify_at(&unsigned("RS256", "AAAA"), &keys, NOW), Err(IdTokenError::UnknownKey)));
    }

    #[test]
    fn only_the_key_that_is_named_counts() {
        let (ours, others) = (Signer::new("k"), Signer::new("k2"));
        let token = ours.sign(&header(), &claims());
        assert_eq!(verify_at(&token, &[others.jwk()], NOW), Err(IdTokenError::UnknownKey));
        assert_eq!(verify_at(&token, &[], NOW), Err(IdTokenError::UnknownKey));
        assert!(verify_at(&token, &[others.jwk(), ours.jwk()], NOW).is_ok());
        let impostor = Signer { id: "k", ..Signer::new("k") };
        assert_eq!(verify_at(&token, &[impostor.jwk()], NOW), Err(IdTokenError::Signature));
        let nameless = ours.sign(&json!({"alg": "ES256"}), &claims());
        assert!(verify_at(&nameless, &[others.jwk(), ours.jwk()], NOW).is_ok());
        let mut encrypting = ours.jwk();
        encrypting.common.public_key_use = Some(PublicKeyUse::Encryption);
        assert_eq!(verify_at(&token, &[encrypting], NOW), Err(IdTokenError::UnknownKey));
        for bad in ["", ".", "..", "a.b.c", &"A".repeat(70_000), &token[..token.len() - 4], &format!("{token}.x")] {
            assert!(verify_at(bad, &[ours.jwk()], NOW).is_err(), "{bad:.20}");
        }
    }
}
