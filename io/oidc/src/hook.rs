//! Sends messages for persons to an organisation's hook.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use sallyport_identity::hook_signature;

use crate::{OidcError, Providers, http::Call};

/// Attempts before a message is given up.
pub const MAX_HOOK_TRIES: u32 = 3;
/// Pause after the first attempt; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Timeout of all attempts together.
const MAX_TIME: Duration = Duration::from_secs(20);
const SIGNATURE: HeaderName = HeaderName::from_static("sallyport-signature");

/// A message for a hook.
#[derive(Debug, Clone, Copy)]
pub struct HookCall<'a> {
    /// Its URL.
    pub url: &'a str,
    /// CAs in PEM for its certificate, instead of the system's.
    pub ca_pem: Option<&'a str>,
    /// The signing secret.
    pub secret: &'a str,
    /// The JSON body.
    pub body: &'a str,
    /// The current time in seconds since 1970 (UTC).
    pub at: i64,
}

/// Reason why a message was not delivered. The text is for people, and contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message could not be sent to the hook: {reason}")]
pub struct HookError {
    /// The reason.
    pub reason: String,
}

/// The result of one attempt.
enum AttemptResult {
    Done,
    /// Another attempt may help.
    Again(String),
    Never(String),
}

impl Providers {
    /// Sends a message to a hook, with further attempts if they may help. Every status 2xx is a success; redirects are
    /// not followed.
    ///
    /// # Errors
    /// The message was not delivered, as far as known.
    pub async fn call_hook(&self, call: HookCall<'_>) -> Result<(), HookError> {
        let mut last = "no answer in time".to_owned();
        let tries = async {
            let mut pause = FIRST_PAUSE;
            for tried in 1..=MAX_HOOK_TRIES {
                match self.try_hook(call).await {
                    AttemptResult::Done => return Ok(()),
                    AttemptResult::Never(reason) => return Err(reason),
                    AttemptResult::Again(reason) if tried == MAX_HOOK_TRIES => return Err(reason),
                    AttemptResult::Again(reason) => last = reason,
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            Err("no answer in time".to_owned())
        };
        let outcome = tokio::time::timeout(MAX_TIME, tries).await;
        outcome.unwrap_or(Err(last)).map_err(|reason| HookError { reason })
    }

    async fn try_hook(&self, hook: HookCall<'_>) -> AttemptResult {
        let signature = hook_signature(hook.secret.as_bytes(), hook.at, hook.body.as_bytes());
        let Ok(signature) = HeaderValue::from_str(&signature) else {
            return AttemptResult::Never("the signature could not be created".to_owned());
        };
        let json = HeaderValue::from_static("application/json");
        let call = Call {
            method: Method::POST,
            body: Some(hook.body.to_owned()),
            more: vec![(header::CONTENT_TYPE, json), (SIGNATURE, signature)],
            ..Call::get("a message", hook.url)
        };
        match self.http.call(hook.ca_pem, call).await {
            Ok(answer) if answer.status.is_success() => AttemptResult::Done,
            Ok(answer) => {
                let status = answer.status;
                let reason = format!("the hook answered with status {}", status.as_u16());
                let may_help = status.is_server_error()
                    || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
                if may_help { AttemptResult::Again(reason) } else { AttemptResult::Never(reason) }
            }
            Err(OidcError::Unreachable { host, reason }) => {
                AttemptResult::Again(format!("{host} cannot be reached: {reason}"))
            }
            Err(OidcError::TimedOut { host }) => AttemptResult::Again(format!("{host} did not answer in time")),
            Err(OidcError::Answer { reason, .. }) => {
                AttemptResult::Never(format!("its answer cannot be used: {reason}"))
            }
            Err(OidcError::Private { host }) => {
                AttemptResult::Never(format!("{host} has a private address, which this installation does not allow"))
            }
            Err(OidcError::Insecure(url)) => AttemptResult::Never(format!("{url:?} is not an https address")),
            Err(other) => AttemptResult::Never(other.to_string()),
        }
    }
}
