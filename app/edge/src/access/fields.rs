//! The header fields that tell an origin the identity of its client.

use std::{collections::HashMap, sync::Arc};

use http::{HeaderName, HeaderValue};
use sallyport_identity::{ASSERTION_SECONDS, Assertion, header_groups, header_text};
use sallyport_model::{Identity, SocketId, SocketRoute};

use super::IdentityState;

use crate::util::ids;

const X_AUTH_EMAIL: HeaderName = HeaderName::from_static("x-auth-email");
const X_AUTH_NAME: HeaderName = HeaderName::from_static("x-auth-name");
const X_AUTH_GROUPS: HeaderName = HeaderName::from_static("x-auth-groups");
const X_AUTH_PROVIDER: HeaderName = HeaderName::from_static("x-auth-provider");
const X_SALLYPORT_ASSERTION: HeaderName = HeaderName::from_static("x-sallyport-assertion");
/// Stands for the identity provider of machines.
const SERVICE: &str = "service";
/// How long an assertion is sent again before a new one is signed, in seconds.
const MAX_REUSE_SECONDS: i64 = 30;
/// How many assertions are cached.
const MAX_CACHED: usize = 4_096;

/// Header fields for an origin.
pub(crate) type Fields = Arc<[(HeaderName, HeaderValue)]>;

/// The assertions that were signed lately.
#[derive(Debug, Default)]
pub(super) struct AssertionCache {
    by_login: HashMap<(SocketId, [u8; 16]), CachedAssertion>,
}

#[derive(Debug)]
struct CachedAssertion {
    identity: Identity,
    fields: Fields,
    at: i64,
}

impl CachedAssertion {
    fn is_fresh(&self, now: i64) -> bool {
        (0..MAX_REUSE_SECONDS).contains(&(now - self.at))
    }

    /// Whether the assertion belongs to this very login object: a replaced object may have other contents.
    fn is_of(&self, identity: &Identity) -> bool {
        match (&self.identity, identity) {
            (Identity::Person(one), Identity::Person(other)) => Arc::ptr_eq(one, other),
            (Identity::Service(one), Identity::Service(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl IdentityState {
    /// The header fields with the identity for the origin of this socket. `None` if they cannot be made.
    pub(super) fn fields(&self, identity: &Identity, route: &SocketRoute, url: &str, now: i64) -> Option<Fields> {
        let id = match identity {
            Identity::Person(session) => *session.id.as_bytes(),
            Identity::Service(token) => *token.id.as_bytes(),
        };
        let key = (route.id, id);
        {
            let cache = self.assertions.lock();
            if let Some(cached) =
                cache.by_login.get(&key).filter(|cached| cached.is_fresh(now) && cached.is_of(identity))
            {
                return Some(cached.fields.clone());
            }
        }
        let fields = self.make(identity, url, now)?;
        let mut cache = self.assertions.lock();
        if cache.by_login.len() >= MAX_CACHED {
            cache.by_login.retain(|_, cached| cached.is_fresh(now));
            if cache.by_login.len() >= MAX_CACHED {
                cache.by_login.clear();
            }
        }
        cache.by_login.insert(key, CachedAssertion { identity: identity.clone(), fields: fields.clone(), at: now });
        Some(fields)
    }

    fn make(&self, identity: &Identity, url: &str, now: i64) -> Option<Fields> {
        let jti = format!("{:032x}", u128::from_be_bytes(ids::random()));
        let (id, no_groups) =
            (if let Identity::Service(token) = identity { token.id.to_string() } else { String::new() }, []);
        let assertion = match identity {
            Identity::Person(session) => Assertion {
                iss: &self.login_url,
                aud: url,
                sub: &session.person.subject,
                email: Some(session.person.email.as_str()),
                name: session.person.name.as_deref(),
                groups: &session.person.groups,
                provider: session.person.provider.as_str(),
                iat: now,
                exp: now + ASSERTION_SECONDS,
                jti: &jti,
            },
            Identity::Service(token) => Assertion {
                iss: &self.login_url,
                aud: url,
                sub: &id,
                email: token.email.as_ref().map(sallyport_model::PersonEmail::as_str),
                name: Some(token.display_name.as_deref().unwrap_or(&token.name)),
                groups: &no_groups,
                provider: SERVICE,
                iat: now,
                exp: now + ASSERTION_SECONDS,
                jti: &jti,
            },
        };
        let token = self.parts()?.assertions.sign(&assertion)?;
        let mut fields = Vec::with_capacity(5);
        let mut put = |name, text: String| -> Option<()> {
            if !text.is_empty() {
                fields.push((name, HeaderValue::try_from(text).ok()?));
            }
            Some(())
        };
        put(X_AUTH_EMAIL, assertion.email.unwrap_or_default().to_owned())?;
        put(X_AUTH_NAME, header_text(assertion.name.unwrap_or_default()))?;
        put(X_AUTH_GROUPS, header_groups(assertion.groups)?)?;
        put(X_AUTH_PROVIDER, assertion.provider.to_owned())?;
        put(X_SALLYPORT_ASSERTION, token)?;
        Some(fields.into())
    }
}
