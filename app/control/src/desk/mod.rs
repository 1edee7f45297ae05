//! `https://desk.<domain>/`: the dashboard, its sessions, and the API for its page.
//!
//! May use: `login`, `service`, `request`, and what those may use.
//!
//! The page calls the same `/v1` as every client does. The browser shows a cookie, and [`answer`] puts an access token of
//! the cookie's session in its place, so that the roles of the API are those of the desk.

mod files;
mod guard;
mod session;

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{Method, StatusCode, header};
use tower_service::Service as _;

use crate::{problem::ApiError, request::middleware, state::App};

/// The paths of the desk's host. `api` answers those of `/v1`.
pub(crate) fn router(app: &App, api: Router) -> Router {
    let own = Router::new()
        .route("/session", get(session::show).post(session::begin).delete(session::end))
        .fallback(middleware::no_such_path)
        .layer(axum::middleware::from_fn_with_state(app.clone(), middleware::finish))
        .with_state(app.clone());
    let app = app.clone();
    Router::new().fallback(move |request: Request| {
        let (app, own, api) = (app.clone(), own.clone(), api.clone());
        async move {
            let (path, id) = (request.uri().path().to_owned(), middleware::request_id(request.headers()));
            answer(&app, own, api, request).await.unwrap_or_else(|error| refusal(error, &path, &id))
        }
    })
}

/// The desk's host of an installation without a desk.
pub(crate) fn closed(app: &App) -> Router {
    let closed = || async {
        let detail = "this installation serves no desk: its operator has turned it off";
        ApiError::new(StatusCode::NOT_FOUND, "no-desk", detail)
    };
    Router::new()
        .fallback(closed)
        .layer(axum::middleware::from_fn_with_state(app.clone(), middleware::finish))
        .with_state(app.clone())
}

/// A refusal of the desk itself, with the header fields that every answer of the API has.
fn refusal(error: ApiError, path: &str, request_id: &str) -> Response {
    if let Some(inside) = error.inner() {
        tracing::error!(request_id, path, error = inside, "a request of the desk failed");
    }
    let mut response = error.render(path, request_id);
    middleware::secure(response.headers_mut(), request_id);
    response
}

/// A file of the page, the session, or the answer of the API to the session's account.
async fn answer(app: &App, mut own: Router, mut api: Router, request: Request) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let is_of_api = path.starts_with("/v1/") || path == "/openapi.json";
    if !is_of_api && path != "/session" {
        return Ok(page(&request));
    }
    guard::check(&request)?;
    let Ok(answer) = if is_of_api {
        let (mut parts, body) = request.into_parts();
        session::authorize(app, &mut parts).await?;
        api.call(Request::from_parts(parts, body)).await
    } else {
        own.call(request).await
    };
    Ok(answer)
}

/// A file of the page. Paths without a file are places in the page.
fn page(request: &Request<Body>) -> Response {
    let is_head = request.method() == Method::HEAD;
    if request.method() != Method::GET && !is_head {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response();
    }
    files::find(request.uri().path()).response(request.headers(), is_head)
}
