//! The body of an origin's answer, and what carries it.

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

/// What carries an answer's body.
pub(crate) enum ResponseCarrier {
    /// A connection of its own, which goes back to its origin when the body has ended.
    H1(Box<H1Connection>),
    /// A place on a shared one.
    H2 {
        /// What comes.
        body: Incoming,
        /// Kept for as long as it does.
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

    /// As [`H1Connection::poll_upload`]; a shared connection has a task that sends.
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let Self::H1(connection) = self {
            connection.poll_upload(cx);
        }
    }

    /// Whether the body is over.
    fn is_end_stream(&self) -> bool {
        match self {
            Self::H1(connection) => connection.is_response_over(),
            Self::H2 { body, .. } => body.is_end_stream(),
        }
    }

    /// How long the rest of the body is.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::H1(connection) => connection.size_hint(),
            Self::H2 { body, .. } => body.size_hint(),
        }
    }
}

/// The body of an origin's answer.
///
/// Dropped before its end it takes its connection with it, which resets the stream: the origin learns that nobody
/// listens.
pub(crate) struct Download {
    failed: Option<BoxError>,
    is_broken: bool,
    /// How much came.
    bytes: u64,
    /// Both are there until the body has ended, or broken off.
    carrier: Option<ResponseCarrier>,
    origin: Option<InFlight>,
}

impl Download {
    /// The body that this carrier brings.
    pub(crate) fn new(carrier: ResponseCarrier, origin: InFlight) -> Self {
        if carrier.size_hint().lower() > MAX_SHORT_ANSWER_BYTES {
            origin.origin().answers_long();
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
                // A stream of HTTP/2 drops what it has not sent yet when a body fails. It is given one more turn to send
                // what came before.
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

    /// Sends on of the request while its client takes nothing of the answer.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let Some(carrier) = &mut self.carrier {
            carrier.poll_upload(cx);
        }
    }

    /// So much more came.
    fn record_received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes > MAX_SHORT_ANSWER_BYTES
            && let Some(origin) = &self.origin
        {
            origin.origin().answers_long();
        }
    }

    fn finish(&mut self) {
        let origin = self.origin.take();
        if let Some(origin) = &origin
            && self.bytes <= MAX_SHORT_ANSWER_BYTES
        {
            origin.origin().answered_short();
        }
        if let (Some(ResponseCarrier::H1(connection)), Some(origin)) = (self.carrier.take(), origin) {
            origin.origin().put_back(connection);
        }
    }

    /// Whether there is no more frame.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.carrier.is_none() && !self.is_broken
    }

    /// How long the rest of the body is.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.carrier.as_ref().map_or_else(|| SizeHint::with_exact(0), ResponseCarrier::size_hint)
    }
}
