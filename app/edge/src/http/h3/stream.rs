//! One HTTP/3 request: serves it, and sends the response as fast as the client reads.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, response::Parts};
use http_body::Body as _;
use quinn::{RecvStream, SendStream, StoppedError, VarInt};
use sallyport_http::websocket::{WebSocketKey, is_websocket};
use sallyport_http3::{ErrorCode, Fault, Piece, RequestHead, RequestStream, response};
use tokio::time::timeout;

use super::{CONFIG, clients::Clients, websocket::PendingWebSocket};

use crate::{
    body::{
        h3::{BodySignal, BodySignals, Http3Body, Http3State, RequestReader, RunningRequest, varint},
        upload::{BoxError, ClientBody},
    },
    http::{
        connection::Client,
        multiplexed::{MIN_PROGRESS_BYTES, finish_head, set_refusal},
        request::{self, EarlyData},
        response_body::ResponseBody,
        send_bound,
        server::HttpServer,
        upgrade::Upgraded,
    },
    util::{http_date::date, ids},
};

/// A part of a body of at least this size is sent without copying; a shorter one is copied behind its frame header.
const MIN_PIECE_BYTES: usize = 2_048;

/// Up to this size, the receipt of a response is not waited for: that would wake its task once more.
const MAX_UNWATCHED_BYTES: usize = 16 * 1024;

/// Resolves when the client no longer reads the response, or has received all of it.
type Stopped = Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send + Sync>>;

/// The response of a stream. Dropped early, it resets the stream.
pub(super) struct StreamResponse {
    pub(super) send: SendStream,
    /// `None` after it has resolved.
    stopped: Option<Stopped>,
    pub(super) signals: Arc<BodySignals>,
    state: Arc<Http3State>,
    /// Frames that are not written yet.
    unwritten: BytesMut,
    has_head: bool,
    /// How many bytes were written.
    sent: usize,
    /// Whether the client has received the whole response.
    pub(super) is_over: bool,
    /// The code to reset the stream with.
    pub(super) code: ErrorCode,
    _running: RunningRequest,
}

/// Why a response was not sent completely: the stream is closed, or to be reset.
struct Broken;

/// Serves the request of a stream, until the client has received the response or gives the request up.
pub(super) fn serve(
    server: Arc<HttpServer>,
    clients: Arc<Clients>,
    state: &Arc<Http3State>,
    send: SendStream,
    recv: RecvStream,
) -> impl Future<Output = ()> + Send + use<> {
    let is_early = recv.is_0rtt();
    let reader = RequestReader::new(RequestStream::new(CONFIG), recv, state.clone());
    let mut stream_response = StreamResponse {
        stopped: Some(Box::pin(send.stopped())),
        send,
        signals: Arc::default(),
        state: state.clone(),
        unwritten: BytesMut::new(),
        has_head: false,
        sent: 0,
        is_over: false,
        code: ErrorCode::REQUEST_CANCELLED,
        _running: state.begin_request(),
    };
    async move {
        let Some((head, reader)) = stream_response.read_head(&server, reader).await else { return };
        let state = &stream_response.state;
        let client = clients.of_request(&state.quic, || state.ask_for_proof()).await;
        drop(clients);
        let (mut request, mut websocket) = request_of(head, reader, &server, &client, &stream_response.signals).await;
        if is_early {
            request.extensions_mut().insert(EarlyData);
        }
        // Boxed, so that its memory is freed when the response begins, which may last long.
        let mut served = Box::pin(request::serve(server, client, request));
        let responded = stream_response.until_response(served.as_mut(), websocket.as_deref_mut()).await;
        let Some(mut response) = responded else { return };
        drop(served);
        match response.body_mut().take_upgraded().zip(websocket) {
            Some((upgraded, websocket)) => Box::pin(stream_response.open(response, upgraded, *websocket)).await,
            None => stream_response.send(response).await,
        }
    }
}

/// The request with this head, and with a body unless the stream has ended. An extended CONNECT for a WebSocket has no
/// body, and its client's side is kept.
async fn request_of(
    head: RequestHead,
    reader: RequestReader,
    server: &Arc<HttpServer>,
    client: &Arc<Client>,
    signals: &Arc<BodySignals>,
) -> (Request<ClientBody>, Option<Box<PendingWebSocket>>) {
    let RequestHead { mut parts, expects, protocol, refusal, .. } = head;
    set_refusal(&mut parts, refusal);
    if protocol.is_some_and(|protocol| is_websocket(&protocol)) {
        parts.extensions.insert(WebSocketKey::from_random(ids::random()));
        let body = Http3Body::new(reader, signals.clone(), false, client.uploads.clone());
        let websocket = PendingWebSocket::new(server.clone(), client.clone(), body);
        return (Request::from_parts(parts, ClientBody::Empty), Some(websocket));
    }
    let mut body = Box::new(Http3Body::new(reader, signals.clone(), expects, client.uploads.clone()));
    poll_fn(|cx| {
        body.read_ahead(cx);
        Poll::Ready(())
    })
    .await;
    let body = if body.is_end_stream() { ClientBody::Empty } else { ClientBody::Http3(body) };
    (Request::from_parts(parts, body), None)
}

impl StreamResponse {
    /// Reads the head of the request. `None` if the stream is closed, or to be reset.
    async fn read_head(
        &mut self,
        server: &HttpServer,
        mut reader: RequestReader,
    ) -> Option<(RequestHead, RequestReader)> {
        let mut read = pin!(poll_fn(|cx| reader.poll_piece(cx)));
        // Most heads are here with the stream, and need no timer.
        let read = match poll_now(read.as_mut()).await {
            Some(read) => Ok(read),
            None => timeout(server.state.config.header_timeout, read).await,
        };
        let code = match read {
            Ok(Ok(Piece::Head(head))) => return Some((*head, reader)),
            Ok(Err(code)) => code,
            // A request begins with its head.
            Ok(Ok(_)) => ErrorCode::INTERNAL_ERROR,
            Err(_) => self.state.fail_request(Fault::Stream(ErrorCode::REQUEST_INCOMPLETE)),
        };
        reader.stop(code);
        self.broke_off(code);
        None
    }

    /// Waits for the response. `None` if the stream is closed, or to be reset.
    async fn until_response<T>(
        &mut self,
        mut served: Pin<&mut impl Future<Output = T>>,
        mut websocket: Option<&mut PendingWebSocket>,
    ) -> Option<T> {
        loop {
            let response = poll_fn(|cx| {
                if let Some(websocket) = &mut websocket {
                    // Nothing else reads the stream, which the client may reset.
                    websocket.body.read_ahead(cx);
                }
                match served.as_mut().poll(cx) {
                    Poll::Ready(response) => Poll::Ready(match self.signals.broken() {
                        // The response would be an error page about the end of the request.
                        Some(code) => Err(self.broke_off(code)),
                        None => Ok(Some(response)),
                    }),
                    Poll::Pending => self.poll_event(cx).map(|event| event.map(|()| None)),
                }
            });
            match response.await {
                Ok(Some(response)) => return Some(response),
                // The client waits for this before it sends the body (RFC 9110 section 15.2.1).
                Ok(None) => {
                    let mut out = Vec::new();
                    response::write_head(StatusCode::CONTINUE, &HeaderMap::new(), &mut out);
                    self.send.write_all(&out).await.ok()?;
                }
                Err(Broken) => return None,
            }
        }
    }

    /// Ready when the client waits for `100 Continue`, or when the stream is closed or to be reset.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        match self.signals.poll(cx) {
            Poll::Ready(BodySignal::WantsContinue) => return Poll::Ready(Ok(())),
            Poll::Ready(BodySignal::Broken(code)) => {
                return Poll::Ready(Err(self.broke_off(code)));
            }
            Poll::Pending => {}
        }
        ready!(self.poll_stopped(cx));
        Poll::Ready(Err(Broken))
    }

    /// Ready when the client has received the whole response, or no longer reads it.
    pub(super) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stopped) = &mut self.stopped else { return Poll::Ready(()) };
        let outcome = ready!(stopped.as_mut().poll(cx));
        self.stopped = None;
        match outcome {
            Ok(None) => self.is_over = true,
            Ok(Some(_)) => drop(self.broke_off(ErrorCode::REQUEST_CANCELLED)),
            // The connection is lost.
            Err(_) => {}
        }
        Poll::Ready(())
    }

    /// Records that the request broke off. One that its client gave up before the response counts against the client.
    fn broke_off(&mut self, code: ErrorCode) -> Broken {
        if code == ErrorCode::REQUEST_CANCELLED && !self.has_head {
            self.state.count_given_up();
        }
        self.code = code;
        Broken
    }

    /// Ready when the stream is closed, or to be reset.
    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_event(cx)).is_ok() {}
        Poll::Ready(())
    }

    async fn send(mut self, response: Response<ResponseBody>) {
        let (head, mut body) = response.into_parts();
        let sent = async {
            self.send_whole(head, &mut body).await?;
            self.flush().await?;
            self.send.finish().map_err(|_| Broken)
        };
        if sent.await.is_err() {
            return;
        }
        if let Some(mut unread) = body.into_unread() {
            send_bound::mark_waiting_for_origin();
            poll_fn(|cx| match unread.poll_end(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => self.poll_broken(cx),
            })
            .await;
        }
        if self.sent <= MAX_UNWATCHED_BYTES && !self.state.with(|http| http.is_ending()) {
            // Long before a close, the client has received so little, or the connection is lost.
            self.is_over = true;
            return;
        }
        // The connection may be closed once no request runs, and a close discards what was not received.
        send_bound::mark_waiting_for_client();
        poll_fn(|cx| self.poll_stopped(cx)).await;
    }

    /// Sends the response that opens a WebSocket, and relays the WebSocket until its end.
    async fn open(mut self, response: Response<ResponseBody>, upgraded: Upgraded, websocket: PendingWebSocket) {
        let (mut head, _) = response.into_parts();
        date(&mut head.headers);
        self.add_head(&head);
        drop(head);
        send_bound::mark_waiting_for_client();
        if self.flush().await.is_err() {
            return;
        }
        // The stream of the WebSocket bounds the client from here on.
        send_bound::mark_waiting_for_origin();
        self.unwritten = BytesMut::new();
        let (server, client) = (websocket.server.clone(), websocket.client.clone());
        upgraded.relay(&server, client, websocket.into_stream(self)).await;
    }

    fn add_head(&mut self, head: &Parts) {
        let mut out = Vec::with_capacity(256);
        response::write_head(head.status, &head.headers, &mut out);
        self.unwritten.extend_from_slice(&out);
        self.has_head = true;
    }

    /// Sends a response. Its last frames may be left in `unwritten`.
    async fn send_whole(&mut self, mut head: Parts, body: &mut ResponseBody) -> Result<(), Broken> {
        let ends = finish_head(&mut head, body);
        self.add_head(&head);
        drop(head);
        if ends {
            return Ok(());
        }
        loop {
            let frame = match poll_now(pin!(poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)))).await {
                Some(frame) => frame,
                None => {
                    self.flush().await?;
                    let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
                        Poll::Ready(frame) => Poll::Ready(Some(frame)),
                        Poll::Pending => self.poll_broken(cx).map(|()| None),
                    });
                    frame.await.ok_or(Broken)?
                }
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(self.break_off(&error)),
                None => return Ok(()),
            };
            match frame.into_data() {
                Ok(data) => {
                    self.send_data(data).await?;
                    if body.is_end_stream() {
                        return Ok(());
                    }
                }
                Err(frame) => {
                    if let Ok(fields) = frame.into_trailers() {
                        let mut out = Vec::new();
                        response::write_trailers(&fields, &mut out);
                        self.unwritten.extend_from_slice(&out);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Sends a part of the body, or keeps a short one for the next write.
    async fn send_data(&mut self, data: Bytes) -> Result<(), Broken> {
        if data.is_empty() {
            return Ok(());
        }
        let mut out = Vec::with_capacity(8);
        response::write_data_head(data.len(), &mut out);
        self.unwritten.extend_from_slice(&out);
        if data.len() >= MIN_PIECE_BYTES {
            return self.write(data).await;
        }
        self.unwritten.extend_from_slice(&data);
        if self.unwritten.len() >= MIN_PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Broken> {
        self.write(Bytes::new()).await
    }

    /// Writes the unwritten frames, and `data` behind them.
    async fn write(&mut self, data: Bytes) -> Result<(), Broken> {
        let mut pieces = [self.unwritten.split().freeze(), data];
        while pieces.iter().any(|piece| !piece.is_empty()) {
            let written = self.send.write_chunks(&mut pieces).await.map_err(|_| Broken)?;
            self.sent += written.bytes;
            if written.bytes >= MIN_PROGRESS_BYTES {
                send_bound::mark_waiting_for_client();
                self.state.record_sent(written.bytes);
            }
        }
        Ok(())
    }

    fn break_off(&mut self, error: &BoxError) -> Broken {
        tracing::debug!(%error, "a response was not completed");
        self.code = ErrorCode::INTERNAL_ERROR;
        Broken
    }
}

impl Drop for StreamResponse {
    fn drop(&mut self) {
        if !self.is_over {
            // Without it, the end of the stream would look like the end of the response. Fails if the stream is closed.
            let _ = self.send.reset(varint(self.code));
        }
    }
}

/// Polls once.
async fn poll_now<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
