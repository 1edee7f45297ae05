//! Messages to owners of accounts, by the hook that the operator has set up for this server: the protocol is the one of
//! the hooks of local providers.

use std::fmt;

use sallyport_api::Secret;
use sallyport_model::{AccountId, Email, MIN_HOOK_SECRET_BYTES, ProviderConfig, ProviderConfigError, ProviderKind};
use sallyport_oidc::{HookCall, HookError, Providers, Reach};
use serde_json::json;

/// The hook that sends messages to owners of accounts.
#[derive(Clone)]
pub struct MailHook {
    config: ProviderConfig,
    secret: Secret,
}

impl MailHook {
    /// A hook at this address, with the secret that signs, and the authorities that its certificate is verified with,
    /// in PEM, in place of the system's.
    ///
    /// # Errors
    /// What is wrong with them, in a sentence.
    pub fn new(url: &str, secret: Secret, ca_pem: Option<String>) -> Result<Self, String> {
        if secret.expose().len() < MIN_HOOK_SECRET_BYTES {
            return Err(format!("the secret of a hook has at least {MIN_HOOK_SECRET_BYTES} bytes"));
        }
        let config = json!({ "kind": ProviderKind::Local, "hook": url, "ca_pem": ca_pem });
        let config: ProviderConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
        config.check().map_err(|ProviderConfigError { reason, .. }| reason.to_string())?;
        Ok(Self { config, secret })
    }
}

impl fmt::Debug for MailHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailHook").field("url", &self.config.hook).finish_non_exhaustive()
    }
}

/// Sends messages to owners of accounts.
pub(crate) struct Mail {
    hook: MailHook,
    /// Calls the hook anywhere: the operator chose the address.
    caller: Providers,
}

impl Mail {
    pub(crate) fn new(hook: MailHook) -> Self {
        let caller = Providers::new(Reach::Anywhere, concat!("sallyport/", env!("CARGO_PKG_VERSION")));
        Self { hook, caller }
    }

    /// Gives the hook a message with this body at this time, in seconds since 1970.
    pub(crate) async fn send(&self, body: &str, at: i64) -> Result<(), HookError> {
        let MailHook { config, secret } = &self.hook;
        let call = HookCall {
            url: config.hook.as_deref().unwrap_or_default(),
            ca_pem: config.ca_pem.as_deref(),
            secret: secret.expose(),
            body,
            at,
        };
        self.caller.call_hook(call).await
    }
}

/// A message to the owner of an account, or to an invited address.
pub(crate) struct Message<'a> {
    /// The kind of message, for the hook.
    pub(crate) kind: &'static str,
    pub(crate) email: &'a Email,
    /// The name of the recipient, where it is known.
    pub(crate) name: Option<&'a str>,
    /// The page to open.
    pub(crate) link: Option<&'a str>,
    pub(crate) code: &'a str,
    /// The command that does the same on a command line.
    pub(crate) command: &'a str,
    pub(crate) expires_at: i64,
    pub(crate) organisation: AccountId,
    /// The name of the organisation.
    pub(crate) organisation_name: &'a str,
}

/// The result of sending a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The hook took the message.
    Delivered,
    /// There is no hook.
    NoHook,
    /// The hook did not take the message: the reason, a sentence.
    Failed(String),
}
