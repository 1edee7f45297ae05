//! Lists as lines of JSON: all items, one in each line, read from the store as fast as the client takes them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{header, request::Parts};
use http_body::Frame;
use sallyport_store::Position;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::{problem::ApiError, state::App};

/// The media type of lines of JSON.
const NDJSON: &str = "application/x-ndjson";
/// How many items are read and held at a time.
pub(crate) const LINES_AT_ONCE: u32 = 100;

/// Whether the client asks for lines instead of pages.
pub(crate) struct AsLines(pub(crate) bool);

impl FromRequestParts<App> for AsLines {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        let accepted = parts.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut kinds = accepted.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
        Ok(Self(kinds.any(|kind| kind.trim().eq_ignore_ascii_case(NDJSON))))
    }
}

/// The response with all items after a position. `read` gives at most [`LINES_AT_ONCE`] of them after a position.
///
/// A failure after the first items ends the response without its end, so that the client sees that items are missing.
pub(crate) async fn lines<T, F>(
    after: Position,
    read: impl Fn(Position) -> F + Send + 'static,
) -> Result<Response, ApiError>
where
    T: Serialize + Send,
    F: Future<Output = Result<Vec<(Position, T)>, ApiError>> + Send,
{
    let (first, mut next) = text(read(after).await?)?;
    // The next items are read while these are on their way; the client's pace holds back all others.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut ready = Ok(first);
        loop {
            let is_over = ready.is_err();
            // Without a receiver the client has gone.
            if sender.send(ready).await.is_err() || is_over {
                return;
            }
            let Some(after) = next else { return };
            ready = match read(after).await.and_then(text) {
                Ok((text, position)) => {
                    next = position;
                    Ok(text)
                }
                Err(error) => {
                    tracing::warn!(?error, "a list ended early");
                    Err(io::Error::other("a list ended early"))
                }
            };
        }
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::new(Lines(receiver))).into_response())
}

/// The items as lines, and the position after which there may be more.
fn text<T: Serialize>(rows: Vec<(Position, T)>) -> Result<(Bytes, Option<Position>), ApiError> {
    let next = rows.last().map(|(position, _)| *position).filter(|_| rows.len() >= LINES_AT_ONCE as usize);
    let mut text = Vec::new();
    for (_, item) in rows {
        serde_json::to_writer(&mut text, &item).map_err(ApiError::internal)?;
        text.push(b'\n');
    }
    Ok((text.into(), next))
}

/// The body of such a response.
struct Lines(mpsc::Receiver<io::Result<Bytes>>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(ready!(self.0.poll_recv(cx)).map(|text| text.map(Frame::data)))
    }
}
