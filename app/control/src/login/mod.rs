//! `https://login.<domain>/`: the login of persons by browser, for all sockets of an organisation.
//!
//! May use: `service`, `request`, and what those may use.
//!
//! A socket's edge redirects a browser to `/start` with a sealed request. A known browser returns at once; others go to
//! an identity provider and return to `/callback/...`. At the end the browser returns to the socket with a sealed
//! grant. For passwords of this installation the provider is `local`, with pages here. No host, organisation or return
//! address is taken from the browser: all come from sealed values and from the store.

mod account;
mod backchannel;
mod callback;
pub(crate) mod cookies;
mod form;
mod local;
mod logout;
pub(crate) mod page;
mod reset;
mod services;
mod session;
mod start;

use axum::{
    Router,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderValue, StatusCode, header};
use tracing::Instrument as _;

use crate::{audit::Trail, login::page::LoginError, problem::ApiError, request::middleware, state::App};

/// The longest query, in bytes.
const MAX_QUERY_BYTES: usize = 8_192;

/// The pages of the login host that send a browser to the login and get it back.
pub(crate) const PAGES: [&str; 3] = ["/client", "/device", "/account"];

/// The paths of the login host, with the pages of other rooms.
pub(crate) fn router(app: &App, others: Router<App>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/start", get(start::start))
        .route("/callback/{organisation}/{provider}", get(callback::callback))
        .route("/logout", get(logout::ask).post(logout::logout))
        .route("/logged-out", get(logout::logged_out))
        .route("/backchannel-logout/{organisation}/{provider}", post(backchannel::logout))
        .route("/sign-on", get(start::sign_on))
        .route("/account", get(account::show).post(account::change))
        .route("/reset", get(reset::show).post(reset::set))
        .merge(local::pages())
        .merge(others)
        .fallback(no_such_page)
        .layer(axum::middleware::from_fn_with_state(app.clone(), finish_page))
        .with_state(app.clone())
}

async fn index() -> Response {
    let text =
        "<p>This is the login page of a service. Open the address of that service, and follow it from there.</p>"
            .to_owned();
    let ways = page::ways_on(&[("/account", "Your account"), ("/logout", "Log out")]);
    page::page(StatusCode::OK, "Sign in", text + &ways)
}

async fn no_such_page() -> LoginError {
    LoginError::new(StatusCode::NOT_FOUND, "No such page", "There is nothing at this address.")
        .next("Open the address of the service that you want to use.")
        .link("/", "To the start page")
}

/// Runs the request to its end, and renders its page. Runs in a task of its own: a browser that leaves does not stop a
/// login between the store and the edges.
async fn finish_page(State(app): State<App>, request: Request, next: Next) -> Response {
    let request_id = middleware::request_id(request.headers());
    let path = request.uri().path().to_owned();
    let too_long = request.uri().query().is_some_and(|query| query.len() > MAX_QUERY_BYTES);
    let mut response = if too_long {
        LoginError::new(StatusCode::URI_TOO_LONG, "Address too long", "This address is longer than the server accepts.")
            .into_response()
    } else {
        let trail = Trail::of(&request, &request_id);
        let handling = tokio::spawn(trail.around(next.run(request)).in_current_span());
        match handling.await {
            Ok(response) => response,
            Err(error) => LoginError::from(ApiError::internal(error)).into_response(),
        }
    };
    let status = response.status();
    let cookies: Vec<HeaderValue> = response.headers().get_all(header::SET_COOKIE).iter().cloned().collect();
    let error = response.extensions_mut().remove::<LoginError>().or_else(|| {
        (status == StatusCode::METHOD_NOT_ALLOWED)
            .then(|| LoginError::new(status, "Not that way", "This page does not support this request method."))
    });
    if let Some(error) = error {
        if let Some(inside) = &error.inside {
            let status = error.status.as_u16();
            tracing::warn!(request_id, path, status, error = inside, "a login was not finished");
        }
        response = error.render(&request_id, &app.config.site);
        for cookie in cookies {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    page::secure(response.headers_mut(), &request_id);
    response
}
