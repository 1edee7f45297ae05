//! The body of a request that came over HTTP/2.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sallyport_http2::{ErrorCode, Read, StreamId};

use super::shared::Shared;
use crate::body::{upload::BoxError, upload_meter::UploadMeter};

/// What a client sends on a stream. What it sends when this was dropped is dropped too.
#[derive(Debug)]
pub(crate) struct Http2Body {
    shared: Arc<Shared>,
    stream: StreamId,
    /// Counts what is held of it, and of others.
    meter: Option<Arc<UploadMeter>>,
    has_failed: bool,
}

impl Http2Body {
    pub(super) fn new(shared: Arc<Shared>, stream: StreamId, meter: Option<Arc<UploadMeter>>) -> Self {
        Self { shared, stream, meter, has_failed: false }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let stream = self.stream;
        let read = self.shared.with(|server| {
            let read = server.read(stream);
            if let (Read::Later, Some(reader)) = (&read, server.reader(stream)) {
                reader.wait(cx);
            }
            read
        });
        Poll::Ready(match read {
            Read::Data(data) => Some(Ok(Frame::data(data))),
            Read::Trailers(fields) => Some(Ok(Frame::trailers(fields))),
            Read::End => None,
            Read::Later => return Poll::Pending,
            Read::Failed(code) => {
                self.has_failed = true;
                Some(Err(broke_off(code)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_failed || self.shared.lock().server.is_read(self.stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.lock().server.unread_bytes(self.stream).map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        let unread = self.shared.with(|server| server.leave_upload(self.stream));
        if let Some(meter) = &self.meter {
            meter.taken(unread);
        }
    }
}

fn broke_off(code: ErrorCode) -> BoxError {
    format!("the client's stream broke off: {code}").into()
}
