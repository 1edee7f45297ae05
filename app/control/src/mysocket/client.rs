//! `/mtls-ca/socket/{dnsname}`: certificates of the original clients for `tls` sockets and ssh hosts.
//!
//! These clients open a browser at `auth` and listen at a port of `localhost`, with nothing that ties the two together.
//! So a person must agree, and the token is valid for minutes and one socket.

use axum::{
    extract::{FromRequestParts, OriginalUri, Path, Query, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header, request::Parts};
use sallyport_model::LoginSessionId;
use serde::{Deserialize, Serialize};

use super::{
    ACCESS_TOKEN,
    messages::{KeyToSign, SignedKey},
};
use crate::{
    problem::ApiError,
    request::extract::{Input, json},
    security::{client::ClientAddress, mysocket_client_token::MysocketClient, signed_token::TokenError},
    state::App,
};

/// The suffix after a socket's name in the original clients' recipe for `ProxyCommand`.
const DUMMY: &str = ".mysocket-dummy";

/// The person of a token.
pub(super) struct Person {
    session: LoginSessionId,
    says: MysocketClient,
}

impl FromRequestParts<App> for Person {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let refuse = |detail: &str| ApiError::new(StatusCode::UNAUTHORIZED, "not-logged-in", detail);
        let mut values = parts.headers.get_all(ACCESS_TOKEN).iter();
        let token = values.next().and_then(|value| value.to_str().ok()).filter(|_| values.next().is_none());
        let token = token.ok_or_else(|| refuse("log in first: send the token of the login in x-access-token"))?;
        let (session, says) =
            app.mysocket_client_tokens.verify(token.trim(), app.clock.now().unix_seconds).map_err(|error| {
                refuse(match error {
                    TokenError::Expired => "the token has expired: log in again",
                    TokenError::Invalid => "the token is not valid: log in again",
                })
            })?;
        Ok(Self { session, says })
    }
}

/// The socket's name without the suffix of the ssh recipe, which not all clients remove.
fn meant(dnsname: &str) -> &str {
    let end = dnsname.len().saturating_sub(DUMMY.len());
    match dnsname.split_at_checked(end) {
        Some((name, dummy)) if dummy.eq_ignore_ascii_case(DUMMY) => name,
        _ => dnsname,
    }
}

impl Person {
    /// Refuses a token of another socket.
    fn require_socket(&self, dnsname: &str) -> Result<(), ApiError> {
        if meant(dnsname).eq_ignore_ascii_case(&self.says.socket_dns) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "not-logged-in",
            "the token is one for another socket: log in again",
        ))
    }
}

/// A request for a certificate.
#[derive(Debug, Deserialize)]
pub(super) struct Csr {
    csr: String,
}

/// A client certificate.
#[derive(Debug, Serialize)]
pub(super) struct Certificate {
    client_certificate: String,
}

/// Redirects the browser to the login.
pub(super) async fn auth(
    State(app): State<App>,
    Path(dnsname): Path<String>,
    OriginalUri(uri): OriginalUri,
) -> Result<Response, ApiError> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri)
        .map_err(|_| ApiError::field("port", "the query is not valid"))?;
    let mut ports = pairs.iter().filter(|(name, _)| name == "port");
    let port = ports.next().and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let port =
        port.filter(|_| ports.next().is_none()).ok_or_else(|| ApiError::field("port", "it is missing, or no port"))?;
    let dnsname = meant(&dnsname);
    let is_name =
        dnsname.len() <= 253 && dnsname.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if !is_name {
        return Err(ApiError::not_found("socket"));
    }
    let to = format!("{}/client/mysocket?host={dnsname}&port={port}", app.login_url());
    Ok((StatusCode::FOUND, [(header::LOCATION, to)]).into_response())
}

/// A client certificate for the key of a request.
pub(super) async fn csr(
    State(app): State<App>,
    person: Person,
    Path(dnsname): Path<String>,
    ClientAddress(address): ClientAddress,
    input: Input<Csr>,
) -> Result<Response, ApiError> {
    person.require_socket(&dnsname)?;
    let admitted = app.admit(person.session, &person.says.socket_dns, address).await?;
    let signed = app.sign_client(&admitted, &input.value.csr).await?;
    Ok(json(StatusCode::OK, &Certificate { client_certificate: signed.certificate }))
}

/// An ssh certificate for a key.
pub(super) async fn ssh(
    State(app): State<App>,
    person: Person,
    Path(dnsname): Path<String>,
    ClientAddress(address): ClientAddress,
    input: Input<KeyToSign>,
) -> Result<Response, ApiError> {
    person.require_socket(&dnsname)?;
    let admitted = app.admit(person.session, &person.says.socket_dns, address).await?;
    let signed = app.sign_person(&admitted, "ssh_public_key", &input.value.ssh_public_key, true).await?;
    Ok(json(StatusCode::OK, &SignedKey { signed_ssh_cert: signed.certificate }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_the_word_of_their_ssh_recipe_means_the_name() {
        for (given, expected) in [
            ("calm-bay-1000.localhost.mysocket-dummy", "calm-bay-1000.localhost"),
            ("calm-bay-1000.localhost.MySocket-Dummy", "calm-bay-1000.localhost"),
            ("calm-bay-1000.localhost", "calm-bay-1000.localhost"),
            (".mysocket-dummy", ""),
            ("\u{e9}\u{e9}mysocket-dummy", "\u{e9}\u{e9}mysocket-dummy"),
            ("", ""),
        ] {
            assert_eq!(meant(given), expected);
        }
    }
}
