//! Programs on the machines of persons: their logins and certificates.
//!
//! May use: `login`, `service`, `request`, and what those may use.
//!
//! A program never sees a password or a cookie. It opens the browser at `/client` of the login host (RFC 8252), where
//! the person logs in and agrees. A code then returns to the program's own port. The program exchanges the code for a
//! token with a verifier that only the program knows (PKCE, RFC 7636). Without a browser on the machine, the person
//! types a code elsewhere (RFC 8628). The token lasts as long as the login. With the token the program gets
//! certificates: each for one socket, for minutes, and only while the socket's policies admit the person.

mod admission;
mod api;
mod codes;
mod grants;
mod pages;

use axum::{
    Router,
    routing::{get, post},
};

use crate::state::App;
pub(crate) use api::*;

/// The paths of the API.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/client", get(api::show).delete(api::end))
        .route("/v1/client/token", post(api::exchange_code))
        .route("/v1/client/device", post(api::begin_device))
        .route("/v1/client/device/token", post(api::exchange_device))
        .route("/v1/client/tls-certificate", post(api::tls_certificate))
        .route("/v1/client/ssh-certificate", post(api::ssh_certificate))
}

/// The pages of the login host.
pub(crate) fn pages() -> Router<App> {
    Router::new()
        .route("/client", get(pages::client).post(pages::agree))
        .route("/client/mysocket", get(pages::mysocket).post(pages::agree))
        .route("/device", get(pages::device).post(pages::agree))
}
