//! Telling an organisation's hook what a person is to be told.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use sallyport_identity::hook_signature;

use crate::{OidcError, Providers, http::Call};

/// How often a hook is tried before a message is given up.
pub const MAX_HOOK_TRIES: u32 = 3;
/// How long it is left alone after the first try; twice as long after each more.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How long all tries together may take.
const MAX_TIME: Duration = Duration::from_secs(20);
const SIGNATURE: HeaderName = HeaderName::from_static("sallyport-signature");

/// A message for a hook.
#[derive(Debug, Clone, Copy)]
pub struct HookCall<'a> {
    /// Where it is.
    pub url: &'a str,
    /// The authorities that its certificate is verified with, in PEM, in place of the system's.
    pub ca_pem: Option<&'a str>,
    /// What signs.
    pub secret: &'a str,
    /// JSON.
    pub body: &'a str,
    /// Now, in seconds since 1970 (UTC).
    pub at: i64,
}

/// Why a hook was not told. The text is for people, and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the hook was not told: {reason}")]
pub struct HookError {
    /// Why.
    pub reason: String,
}

/// What came of one try.
enum Tried {
    Done,
    /// Another try may help.
    Again(String),
    Never(String),
}

impl Providers {
    /// Tells a hook, with a few tries where that may help. Every answer of 2xx is a yes; redirects are not followed.
    ///
    /// # Errors
    /// It was not told, as far as can be known.
    pub async fn tell_hook(&self, call: HookCall<'_>) -> Result<(), HookError> {
        let mut last = "no answer in time".to_owned();
        let tries = async {
            let mut pause = FIRST_PAUSE;
            for tried in 1..=MAX_HOOK_TRIES {
                match self.try_hook(call).await {
                    Tried::Done => return Ok(()),
                    Tried::Never(reason) => return Err(reason),
                    Tried::Again(reason) if tried == MAX_HOOK_TRIES => return Err(reason),
                    Tried::Again(reason) => last = reason,
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            Err("no answer in time".to_owned())
        };
        let told = tokio::time::timeout(MAX_TIME, tries).await;
        told.unwrap_or(Err(last)).map_err(|reason| HookError { reason })
    }

    async fn try_hook(&self, hook: HookCall<'_>) -> Tried {
        let signature = hook_signature(hook.secret.as_bytes(), hook.at, hook.body.as_bytes());
        let Ok(signature) = HeaderValue::from_str(&signature) else {
            return Tried::Never("a signature could not be written".to_owned());
        };
        let json = HeaderValue::from_static("application/json");
        let call = Call {
            method: Method::POST,
            body: Some(hook.body.to_owned()),
            more: vec![(header::CONTENT_TYPE, json), (SIGNATURE, signature)],
            ..Call::get("a message", hook.url)
        };
        match self.http.call(hook.ca_pem, call).await {
            Ok(answer) if answer.status.is_success() => Tried::Done,
            Ok(answer) => {
                let status = answer.status;
                let reason = format!("it answered with status {}", status.as_u16());
                let may_help = status.is_server_error()
                    || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
                if may_help { Tried::Again(reason) } else { Tried::Never(reason) }
            }
            Err(OidcError::Unreachable { host, reason }) => Tried::Again(format!("{host} cannot be reached: {reason}")),
            Err(OidcError::TimedOut { host }) => Tried::Again(format!("{host} did not answer in time")),
            Err(OidcError::Answer { reason, .. }) => Tried::Never(format!("its answer cannot be used: {reason}")),
            Err(OidcError::Private { host }) => {
                Tried::Never(format!("{host} is inside a private network, where this installation asks nobody"))
            }
            Err(OidcError::Insecure(url)) => Tried::Never(format!("{url:?} is no https address")),
            Err(other) => Tried::Never(other.to_string()),
        }
    }
}
