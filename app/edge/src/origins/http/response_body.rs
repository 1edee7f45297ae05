//! The body of an origin's response, and the connection that carries it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{
    body::upload::BoxError,
    origins::{
        http::h1::H1Connection,
        origin::{H2Place, InFlight, MAX_SHORT_ANSWER_BYTES},
    },
};

/// The connection that carries a response body.
pub(crate) enum ResponseCarrier {
    /// An HTTP/1.1 connection, which returns to its origin when the body has ended.
    H1(Box<H1Connection>),
    /// A place on a shared HTTP/2 connection.
    H2 {
        /// The body of the stream.
        body: Incoming,
        /// The place, kept as long as the body.
        _place: H2Place,
    },
}

impl ResponseCarrier {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::H1(connection) => connection.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            Self::H2 { body, .. } => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    /// Like [`H1Connection::poll_upload`]. The task of a shared connection sends by itself.
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let Self::H1(connection) = self {
            connection.poll_upload(cx);
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::H1(connection) => connection.is_response_over(),
            Self::H2 { body, .. } => body.is_end_stream(),
        }
    }

    /// The length of the rest of the body.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::H1(connection) => connection.size_hint(),
            Self::H2 { body, .. } => body.size_hint(),
        }
    }
}

/// The body of an origin's response.
///
/// Dropping it early closes the connection or resets the stream, so the origin stops sending.
pub(crate) struct Download {
    failed: Option<BoxError>,
    is_broken: bool,
    /// How many bytes came.
    bytes: u64,
    /// Both are `None` once the body has ended or failed.
    carrier: Option<ResponseCarrier>,
    origin: Option<InFlight>,
}

impl Download {
    /// The body that this connection carries.
    pub(crate) fn new(carrier: ResponseCarrier, origin: InFlight) -> Self {
        if carrier.size_hint().lower() > MAX_SHORT_ANSWER_BYTES {
            origin.origin().record_long_response();
        }
        let is_over = carrier.is_end_stream();
        let (carrier, origin) = (Some(carrier), Some(origin));
        let mut download = Self { failed: None, is_broken: false, bytes: 0, carrier, origin };
        if is_over {
            download.finish();
        }
        download
    }

    /// The next frame.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(carrier) = &mut self.carrier else { return Poll::Ready(None) };
        match ready!(carrier.poll_frame(cx)) {
            Some(Ok(mut frame)) => {
                let is_over = carrier.is_end_stream();
                if let Some(trailers) = frame.trailers_mut() {
                    sallyport_http::forward::trailers(trailers);
                }
                if let Some(data) = frame.data_ref() {
                    self.record_received(data.len());
                    sallyport_shards::carried(cx, data.len());
                }
                if is_over {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                (self.carrier, self.origin, self.is_broken) = (None, None, true);
                // An HTTP/2 stream discards unsent bytes when its body fails. One more poll lets it send them.
                self.failed = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                self.finish();
                Poll::Ready(None)
            }
        }
    }

    /// Sends more of the request while the client does not read the response.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let Some(carrier) = &mut self.carrier {
            carrier.poll_upload(cx);
        }
    }

    /// Counts bytes, and updates the origin's statistics when the response is long.
    fn record_received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes > MAX_SHORT_ANSWER_BYTES
            && let Some(origin) = &self.origin
        {
            origin.origin().record_long_response();
        }
    }

    fn finish(&mut self) {
        let origin = self.origin.take();
        if let Some(origin) = &origin
            && self.bytes <= MAX_SHORT_ANSWER_BYTES
        {
            origin.origin().record_short_response();
        }
        if let (Some(ResponseCarrier::H1(connection)), Some(origin)) = (self.carrier.take(), origin) {
            origin.origin().put_back(connection);
        }
    }

    /// Whether no frame follows.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.carrier.is_none() && !self.is_broken
    }

    /// The length of the rest of the body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.carrier.as_ref().map_or_else(|| SizeHint::with_exact(0), ResponseCarrier::size_hint)
    }
}
