//! Requests that edges pass on for their clients.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use sallyport_model::{ClientAddr, EdgeId};
use sallyport_store::StoredEdge;

use crate::{problem::ApiError, request::via::NodePeer, state::App};

/// The client of a request that an edge passes on.
pub(crate) const CLIENT: HeaderName = HeaderName::from_static("sallyport-client");

/// Whether the request is for this host.
pub(crate) fn is_for<B>(request: &Request<B>, host: &str) -> bool {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let asked = request.uri().host().or(header).unwrap_or_default();
    let asked = asked.rsplit_once(':').map_or(asked, |(asked, _)| asked);
    asked.trim_end_matches('.').eq_ignore_ascii_case(host)
}

/// The edge with this id; `None` after its removal. An error for a connection without the certificate of an edge.
pub(super) async fn find_edge(app: &App, edge: Option<EdgeId>) -> Result<Option<StoredEdge>, ApiError> {
    let Some(id) = edge else {
        return Err(ApiError::unauthorized("no-certificate", "show the certificate of an edge"));
    };
    Ok(app.store.edge(id).await?)
}

/// The answer to a client of a removed edge that still runs: another edge answers the next request.
fn by_removed() -> ApiError {
    let detail = "the installation removed the edge of this request: use another edge, to which the same address \
                  may lead the next time";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "edge-removed", detail)
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

/// The request of a client that an edge passed on, with the address of the client as an extension.
pub(crate) async fn accept(app: &App, mut request: Request<Body>) -> Result<Request<axum::body::Body>, ApiError> {
    let edge = request.extensions().get::<NodePeer>().and_then(|peer| peer.edge);
    find_edge(app, edge).await?.ok_or_else(by_removed)?;
    let client = request.headers_mut().remove(CLIENT);
    let client = client.as_ref().and_then(|client| client.to_str().ok()?.parse().ok());
    let Some(client) = client else {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "no-client",
            "the header Sallyport-Client is missing: name the client of the request",
        ));
    };
    request.extensions_mut().insert(ClientAddr(client));
    Ok(request)
}
