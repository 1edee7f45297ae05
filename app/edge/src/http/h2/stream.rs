//! One HTTP/2 stream: serves its request, and sends the response as fast as the client reads.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, response::Parts};
use http_body::Body as _;
use sallyport_http::websocket::{WebSocketKey, is_websocket};
use sallyport_http2::{ErrorCode, NewRequest, Room, StreamId};

use super::websocket::PendingWebSocket;

use crate::{
    body::{
        h2::{Http2Body, Http2Server},
        upload::{BoxError, ClientBody},
    },
    http::{
        connection::Client,
        multiplexed::{MIN_PROGRESS_BYTES, finish_head, set_refusal},
        request,
        response_body::ResponseBody,
        send_bound,
        server::HttpServer,
        upgrade::Upgraded,
    },
    util::{http_date::date, ids},
};

/// The response of a stream. Dropped early, it resets the stream.
pub(super) struct StreamResponse {
    pub(super) shared: Arc<Http2Server>,
    pub(super) stream: StreamId,
}

impl Drop for StreamResponse {
    fn drop(&mut self) {
        self.shared.with(|server| server.release_response(self.stream));
    }
}

/// Serves the request of a stream, until the response is sent or the client resets the stream.
pub(super) fn serve(
    server: Arc<HttpServer>,
    client: Arc<Client>,
    shared: &Arc<Http2Server>,
    new: NewRequest,
) -> impl Future<Output = ()> + Send + use<> {
    let stream = new.stream;
    let mut body = new.has_body.then(|| Http2Body::new(shared.clone(), stream, client.uploads.clone()));
    let mut head = new.head;
    let websocket = new.protocol.is_some_and(|protocol| is_websocket(&protocol)).then(|| {
        head.extensions.insert(WebSocketKey::from_random(ids::random()));
        PendingWebSocket::new(server.clone(), client.clone(), body.take())
    });
    set_refusal(&mut head, new.refusal);
    let body = body.map_or(ClientBody::Empty, ClientBody::Http2);
    let stream_response = StreamResponse { shared: shared.clone(), stream };
    // Boxed, so that its memory is freed when the response begins, which may last long.
    let mut served = Box::pin(request::serve(server, client, Request::from_parts(head, body)));
    async move {
        let response = poll_fn(|cx| match served.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => stream_response.poll_closed(cx).map(|()| None),
        });
        let Some(mut response) = response.await else { return };
        drop(served);
        match response.body_mut().take_upgraded().zip(websocket) {
            Some((upgraded, websocket)) => Box::pin(stream_response.open(response, upgraded, *websocket)).await,
            None => stream_response.send(response).await,
        }
    }
}

impl StreamResponse {
    /// Ready when the stream is closed.
    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let server = &mut self.shared.lock().server;
        if server.is_reset(self.stream) {
            return Poll::Ready(());
        }
        if let Some(writer) = server.writer(self.stream) {
            writer.wait(cx);
        }
        Poll::Pending
    }

    /// Sends the head when that is allowed; `ends` if no body follows. `None` if the stream is closed.
    fn poll_send_head(&self, head: &Parts, ends: bool, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.shared.with(|server| {
            if server.is_reset(self.stream) {
                return Poll::Ready(None);
            }
            if !server.may_send_head(self.stream) {
                if let Some(writer) = server.writer(self.stream) {
                    writer.wait(cx);
                }
                return Poll::Pending;
            }
            server.send_head(self.stream, head.status, &head.headers, ends);
            Poll::Ready(Some(()))
        })
    }

    /// Sends as much of `data` as the window allows; `ends` with its last byte. `None` if the stream is closed.
    fn poll_send(&self, data: &mut Bytes, ends: bool, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.shared.with(|server| match server.room(self.stream) {
            Room::Bytes(room) => {
                let piece = data.split_to(room.min(data.len()));
                if piece.len() >= MIN_PROGRESS_BYTES {
                    send_bound::mark_waiting_for_client();
                }
                server.send_data(self.stream, piece, ends && data.is_empty());
                Poll::Ready(Some(()))
            }
            Room::Reset => Poll::Ready(None),
            Room::Later => {
                if let Some(writer) = server.writer(self.stream) {
                    writer.wait(cx);
                }
                Poll::Pending
            }
        })
    }

    async fn send(&self, response: Response<ResponseBody>) {
        let (head, mut body) = response.into_parts();
        if !self.send_whole(head, &mut body).await {
            return;
        }
        let Some(mut unread) = body.into_unread() else { return };
        send_bound::mark_waiting_for_origin();
        poll_fn(|cx| match unread.poll_end(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.poll_closed(cx),
        })
        .await;
    }

    /// Sends the response that opens a WebSocket, and relays the WebSocket until its end.
    async fn open(self, response: Response<ResponseBody>, upgraded: Upgraded, websocket: PendingWebSocket) {
        let (mut head, _) = response.into_parts();
        date(&mut head.headers);
        send_bound::mark_waiting_for_client();
        if poll_fn(|cx| self.poll_send_head(&head, false, cx)).await.is_none() {
            return;
        }
        // The stream of the WebSocket bounds the client from here on.
        send_bound::mark_waiting_for_origin();
        drop(head);
        let (server, client) = (websocket.server.clone(), websocket.client.clone());
        upgraded.relay(&server, client, websocket.into_stream(self)).await;
    }

    /// Sends a response. Returns whether it was sent completely.
    async fn send_whole(&self, mut head: Parts, body: &mut ResponseBody) -> bool {
        let ends = finish_head(&mut head, body);
        let sent = poll_fn(|cx| self.poll_send_head(&head, ends, cx));
        if sent.await.is_none() {
            return false;
        }
        if ends {
            return true;
        }
        drop(head);
        loop {
            let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => self.poll_closed(cx).map(Err),
            });
            let frame = match frame.await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    self.break_off(&error);
                    return false;
                }
                Ok(None) => {
                    self.end();
                    return true;
                }
                Err(()) => return false,
            };
            match frame.into_data() {
                Ok(data) => {
                    let ends = body.is_end_stream();
                    if self.send_data(data, ends).await.is_none() {
                        return false;
                    }
                    if ends {
                        return true;
                    }
                }
                Err(frame) => {
                    if let Ok(fields) = frame.into_trailers() {
                        self.shared.with(|server| server.send_trailers(self.stream, &fields));
                        return true;
                    }
                }
            }
        }
    }

    /// Sends a piece of the body as the window allows; `ends` with its last byte. `None` if the stream is closed.
    async fn send_data(&self, mut data: Bytes, ends: bool) -> Option<()> {
        if data.is_empty() && ends {
            self.end();
        }
        while !data.is_empty() {
            poll_fn(|cx| self.poll_send(&mut data, ends, cx)).await?;
        }
        Some(())
    }

    /// Ends the response.
    pub(super) fn end(&self) {
        self.shared.with(|server| server.send_data(self.stream, Bytes::new(), true));
    }

    fn break_off(&self, error: &BoxError) {
        tracing::debug!(%error, "a response was not completed");
        self.shared.with(|server| server.break_off(self.stream, ErrorCode::INTERNAL_ERROR));
    }
}
