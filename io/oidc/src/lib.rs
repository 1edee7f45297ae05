//! Identity providers: where a browser is sent to log in, and who came back.
//!
//! [`Providers`] speaks OpenID Connect (discovery, authorization code with PKCE, ID tokens whose keys may rotate) and the
//! OAuth 2.0 dialects of GitHub and Facebook. Every call is one connection, bounded in time and bytes; redirects are not
//! followed. Whether a login is good still is asked of its provider later, or told by it. What is believed is decided in `core/identity`. Messages for persons go to an organisation's hook by the same
//! rules.

mod discovery;
mod error;
mod hook;
mod http;
mod oauth;
mod providers;
mod query;
mod standing;

pub use discovery::Found;
pub use error::OidcError;
pub use hook::{HookCall, HookError, MAX_HOOK_TRIES};
pub use http::{CALL_TIMEOUT, MAX_ANSWER_BYTES, Reach};
pub use providers::{Asks, Begin, Finish, MAX_KNOWN_PROVIDERS, Providers};
pub use query::with_query;
pub use standing::{Checked, Finished, LogoutError, MAX_KEPT_TOKEN_BYTES, ProviderTokens};
