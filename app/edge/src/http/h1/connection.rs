//! A busy HTTP/1 connection: reads a request, serves it, writes the response, and repeats.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use http::{Request, Response};
use http_body::Body as _;
use sallyport_http::RequestRefusal;
use sallyport_http1::{
    Framing,
    server::{NewRequest, Phase, ResponseHead, Server},
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    io::ServerIo,
    upload::{Progress, Upload},
};

use crate::{
    body::upload::{BoxError, ClientBody},
    http::{
        connection::{Client, LingerTimer},
        request,
        response_body::ResponseBody,
        server::HttpServer,
        upgrade::Upgraded,
    },
    util::{http_date::date, idle_timer::IdleTimer},
};

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The client left before its response.
    #[error("the client left")]
    Left,
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The body of the response failed.
    #[error("a response was not completed: {0}")]
    Response(BoxError),
}

/// How a connection ended.
pub(super) enum Outcome {
    /// The connection closes.
    Close,
    /// Another protocol follows on the connection.
    Switch(Upgraded),
}

/// A client's connection while requests run.
pub(super) struct Connection<S> {
    io: ServerIo<S>,
    /// The unread rest of the request body.
    upload: Option<Upload>,
    /// Whether `100 Continue` waits to be written.
    has_continue: bool,
}

impl<S> Connection<S> {
    pub(super) fn new(io: ServerIo<S>) -> Self {
        Self { io, upload: None, has_continue: false }
    }

    /// Makes the current request the last one. A client that has ended its side then does not count as gone.
    pub(super) fn disable_keep_alive(&mut self) {
        self.server().disable_keep_alive();
    }

    /// The connection without the memory that only requests need. To be called between requests.
    pub(super) fn into_io(mut self) -> ServerIo<S> {
        self.server().rest();
        self.io
    }

    /// The stream after an upgrade, and the bytes that were read for the next protocol.
    pub(super) fn into_upgraded(self) -> (S, BytesMut) {
        let (stream, server) = self.io.into_parts();
        (stream, server.into_unread())
    }

    fn server(&mut self) -> &mut Server {
        &mut self.io.server
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves requests until one is the last.
    pub(super) async fn serve(
        &mut self,
        server: &Arc<HttpServer>,
        client: &Arc<Client>,
    ) -> Result<Outcome, ConnectionError> {
        loop {
            let Some(next) = self.next_request(|| client.wire.is_closing()).await? else { return Ok(Outcome::Close) };
            client.count_request();
            let client_persists = next.as_ref().is_ok_and(|next| next.keeps_connection);
            let request = self.begin_request(next);
            let response = self.while_reading(request::serve(server.clone(), client.clone(), request)).await?;
            let (persists, upgraded) = self.respond(response, !client.wire.is_closing()).await?;
            if let Some(upgraded) = upgraded {
                return Ok(Outcome::Switch(upgraded));
            }
            // Also if no request follows: an origin may read the rest of the request after its response.
            self.finish_upload(client.send_timeout, persists).await?;
            let is_last = self.server().is_last();
            if !persists || is_last || client.wire.is_closing() {
                if client_persists || is_last {
                    // The client may still send its body, or a request that will not be served.
                    client.wire.mark_unread();
                }
                return Ok(Outcome::Close);
            }
            // The unwanted rest of the body has been read.
            client.wire.mark_read();
        }
    }

    /// The next request, or its refusal. `None` if the client has left, or if the connection is closing and no byte of
    /// a request came.
    pub(super) async fn next_request(
        &mut self,
        is_closing: impl Fn() -> bool,
    ) -> Result<Option<Result<NewRequest, RequestRefusal>>, ConnectionError> {
        poll_fn(|cx| {
            loop {
                if let Some(next) = self.io.poll_request() {
                    return Poll::Ready(Ok(Some(next)));
                }
                match self.io.poll_read(0, cx)? {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(Ok(None)),
                    Poll::Pending if is_closing() && self.server().phase() == Phase::Idle => {
                        return Poll::Ready(Ok(None));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// The request to serve. A refused request has the refusal as an extension, and no other content.
    pub(super) fn begin_request(&mut self, next: Result<NewRequest, RequestRefusal>) -> Request<ClientBody> {
        let next = match next {
            Ok(next) => next,
            Err(refusal) => {
                self.io.state().set_refused(refusal);
                let mut refused = Request::new(ClientBody::Empty);
                refused.extensions_mut().insert(refusal);
                return refused;
            }
        };
        let body = if next.framing == Framing::Length(0) {
            ClientBody::Empty
        } else {
            let body;
            (body, self.upload) = Upload::new(next.framing, &mut self.io);
            ClientBody::Http1(body)
        };
        Request::from_parts(next.head, body)
    }

    /// Waits for `what`, and reads meanwhile. Fails if the client leaves.
    async fn while_reading<T>(&mut self, what: impl Future<Output = T>) -> Result<T, ConnectionError> {
        let mut what = pin!(what);
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(done) = what.as_mut().poll(cx) {
                    return Poll::Ready(Ok(done));
                }
                self.write_continue(cx)?;
                ready!(self.poll_input(cx))?;
            }
        })
        .await
    }

    /// Writes `100 Continue`, if it waits.
    fn write_continue(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.has_continue && self.io.poll_write(cx)?.is_ready() {
            self.has_continue = self.io.poll_flush(cx)?.is_pending();
        }
        Ok(())
    }

    /// Ready when the consumer of the request body can proceed.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let Some(upload) = &mut self.upload else {
            // No request follows: a client that has ended its side has not left.
            if self.server().is_last() {
                return Poll::Pending;
            }
            // A read shows that the client is there. The next head bounds how much is read.
            while self.server().wants_input() {
                if !ready!(self.io.poll_read(0, cx))? {
                    return Poll::Ready(Err(ConnectionError::Left));
                }
            }
            return Poll::Pending;
        };
        if self.io.server.awaits_continue() && upload.is_wanted() {
            self.io.server.send_continue();
            self.has_continue = true;
            return Poll::Ready(Ok(()));
        }
        match ready!(upload.poll(&mut self.io, cx)) {
            Progress::Part => {}
            Progress::Complete => self.upload = None,
            Progress::Abandoned => self.give_up_upload(),
        }
        Poll::Ready(Ok(()))
    }

    /// Leaves the rest of the request body unread, so no request can follow.
    fn give_up_upload(&mut self) {
        self.upload = None;
        self.server().disable_keep_alive();
    }

    /// Writes a response. Returns whether the connection persists, and the protocol that follows, if any.
    pub(super) async fn respond(
        &mut self,
        response: Response<ResponseBody>,
        may_persist: bool,
    ) -> Result<(bool, Option<Upgraded>), ConnectionError> {
        let (mut head, mut body) = response.into_parts();
        date(&mut head.headers);
        let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        let awaited_continue = self.server().awaits_continue();
        let to_send = ResponseHead { status: head.status, fields: &head.headers, length, may_persist };
        let persists = self.server().send_head(&to_send);
        self.server().recycle(head.headers);
        let upgraded = body.take_upgraded();
        let has_body = self.server().has_response_body();
        if !has_body && upgraded.is_none() {
            body.mark_complete();
        }
        self.send(has_body.then_some(body)).await?;
        if awaited_continue {
            // The client may never send the body.
            self.upload = None;
        }
        Ok((persists, upgraded))
    }

    /// Writes the gathered bytes and the rest of a response, as fast as the client reads.
    async fn send(&mut self, mut body: Option<ResponseBody>) -> Result<(), ConnectionError> {
        let mut failure = None;
        poll_fn(|cx| {
            loop {
                gather(&mut body, &mut failure, self.server(), cx);
                let has_room = self.server().output().has_room();
                if self.io.poll_write(cx)?.is_ready() {
                    if !has_room && body.is_some() {
                        continue;
                    }
                    let is_flushed = self.io.poll_flush(cx)?.is_ready();
                    if is_flushed && body.is_none() {
                        return Poll::Ready(
                            failure.take().map_or(Ok(()), |error| Err(ConnectionError::Response(error))),
                        );
                    }
                }
                if let Some(body) = body.as_mut().filter(|_| !has_room && self.upload.is_some()) {
                    body.poll_upload(cx);
                }
                ready!(self.poll_input(cx))?;
            }
        })
        .await
    }

    /// Reads the rest of the request body. While it is consumed, the client may pause for `bound`. If it is not
    /// consumed and the connection persists, the rest is discarded within bounds. Otherwise no request can follow.
    async fn finish_upload(&mut self, bound: Duration, persists: bool) -> Result<(), ConnectionError> {
        let mut idle = IdleTimer::new(bound);
        let mut linger_timer = None;
        poll_fn(|cx| {
            while let Some(upload) = &self.upload {
                let is_unwanted = upload.is_unwanted();
                if is_unwanted && !persists {
                    // The rest is read after the shutdown of this side, which the client may wait for.
                    self.give_up_upload();
                    break;
                }
                let linger_timer = is_unwanted.then(|| linger_timer.get_or_insert_with(LingerTimer::new));
                match (self.poll_input(cx)?, linger_timer) {
                    (Poll::Ready(()), Some(linger_timer)) => linger_timer.mark_progress(),
                    (Poll::Ready(()), None) => idle.moved = true,
                    (Poll::Pending, linger_timer) => {
                        ready!(match linger_timer {
                            Some(linger_timer) => linger_timer.poll_over(cx),
                            None => idle.poll_over(cx),
                        });
                        self.give_up_upload();
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

/// Gathers frames of a response body while the server has room. Sets `body` to `None` behind the last frame.
fn gather(body: &mut Option<ResponseBody>, failure: &mut Option<BoxError>, server: &mut Server, cx: &mut Context<'_>) {
    while let Some(frames) = body
        && server.output().has_room()
    {
        let (is_over, outcome) = match Pin::new(&mut *frames).poll_frame(cx) {
            // The client has all announced bytes, and need not wait for the end of the origin's stream.
            Poll::Pending if server.has_sent_announced_bytes() => {
                frames.mark_complete();
                (true, server.finish(None))
            }
            Poll::Pending => return,
            Poll::Ready(Some(Ok(frame))) => {
                let is_last = frames.is_end_stream();
                match frame.into_data() {
                    Ok(data) => {
                        server.send_data(data);
                        (is_last, if is_last { server.finish(None) } else { Ok(()) })
                    }
                    Err(frame) => (true, server.finish(frame.trailers_ref())),
                }
            }
            Poll::Ready(None) => (true, server.finish(None)),
            Poll::Ready(Some(Err(error))) => {
                // The bytes before the error are sent.
                if server.has_sent_announced_bytes() {
                    (true, server.finish(None))
                } else {
                    server.break_off();
                    *failure = Some(error);
                    (true, Ok(()))
                }
            }
        };
        if let Err(error) = outcome {
            *failure = Some(error.into());
        }
        if is_over {
            *body = None;
        }
    }
}
