//! Identity providers: logins with OpenID Connect and OAuth 2.0.
//!
//! [`Providers`] speaks OpenID Connect (discovery, authorization code with PKCE, ID tokens with rotating keys) and the
//! OAuth 2.0 dialects of GitHub and Facebook. Every call is one connection, with bounds on time and size; redirects are
//! not followed. Later the provider is asked whether a login is still valid, or reports its end. `core/identity`
//! verifies tokens and claims. Messages for persons go to an organisation's hook by the same rules.

mod discovery;
mod error;
mod hook;
mod http;
mod oauth;
mod providers;
mod query;
mod revalidation;

pub use discovery::ProviderMetadata;
pub use error::OidcError;
pub use hook::{HookCall, HookError, MAX_HOOK_TRIES};
pub use http::{CALL_TIMEOUT, MAX_ANSWER_BYTES, Reach};
pub use providers::{AuthorizationRequest, AuthorizationResponse, MAX_CACHED_PROVIDERS, Prompt, Providers};
pub use query::with_query;
pub use revalidation::{CompletedLogin, LoginCheck, LogoutError, MAX_STORED_TOKEN_BYTES, ProviderTokens};
