//! What a connection does: it reads one request after the other, has each served, and writes the answer.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Method, Request, Response, Version};
use http_body::{Body as _, Frame};
use sallyport_http::{
    RequestRefusal,
    codec::{self, AnswerFraming, AnswerHead, Asked, Framing},
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    output::Output,
    upload::{Moved, Upload},
};

use crate::{
    body::upload::{BoxError, ClientBody},
    http::{
        answer_body::AnswerBody,
        connection::{Client, Lingering},
        guarded_io::{GuardedIo, Refused},
        request,
        server::HttpServer,
        upgrade::Upgraded,
    },
    util::{http_date::date, idle_timer::IdleTimer},
};

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The client did not wait for its answer.
    #[error("the client left")]
    Left,
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer did.
    #[error("an answer broke off: {0}")]
    Answer(BoxError),
}

/// How a connection came to its end.
pub(super) enum Ended {
    /// Nothing follows.
    Closes,
    /// Something else does.
    Switches(Upgraded),
}

/// A client's connection while it is busy.
pub(super) struct Connection<S> {
    io: GuardedIo<S>,
    /// What has passed the guard and belongs to nothing yet.
    read: BytesMut,
    output: Output,
    /// Room for the fields of the next request: those of the last answer had it.
    room: HeaderMap,
    /// The rest of the body of the request under way.
    upload: Option<Upload>,
    /// Whether another request can follow: where this one ends is certain.
    has_next: bool,
    /// Whether a client waits for a word that is not out.
    has_word: bool,
}

/// What an answer has to know of its request.
pub(super) struct To {
    is_head: bool,
    is_old: bool,
    takes_trailers: bool,
    keeps_connection: bool,
}

impl<S> Connection<S> {
    pub(super) fn new(io: GuardedIo<S>) -> Self {
        let (read, output, room) = (BytesMut::new(), Output::default(), HeaderMap::new());
        Self { io, read, output, room, upload: None, has_next: true, has_word: false }
    }

    /// No request follows this one, and a client that has ended its side has not left.
    pub(super) fn mark_last(&mut self) {
        self.has_next = false;
    }

    /// The connection below. Between requests nothing is lost with the rest.
    pub(super) fn into_io(self) -> GuardedIo<S> {
        self.io
    }

    /// The connection below after an upgrade, and what was read of it that nobody has taken.
    pub(super) fn into_upgraded(mut self) -> (S, BytesMut) {
        let (stream, unread) = self.io.into_upgraded();
        self.read.unsplit(unread);
        (stream, self.read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves one request after the other, until one is the last.
    pub(super) async fn serve(&mut self, server: &Arc<HttpServer>, client: &Arc<Client>) -> Result<Ended, Broken> {
        loop {
            let Some(asked) = self.next_request(|| client.wire.is_going()).await? else { return Ok(Ended::Closes) };
            client.count_request();
            let (request, to) = self.begin(asked);
            let answer = self.beside(request::serve(server.clone(), client.clone(), request)).await?;
            let (goes_on, upgraded) = self.answer(answer, &to, !client.wire.is_going()).await?;
            if let Some(upgraded) = upgraded {
                return Ok(Ended::Switches(upgraded));
            }
            // Also where no request follows: an origin may take the rest of this one behind its answer.
            let has_next = self.finish_upload(client.send_timeout, goes_on).await?;
            if !goes_on || !has_next || client.wire.is_going() {
                if to.keeps_connection || !has_next {
                    // The client may be sending its body still, or have sent its next request before it heard that none is taken.
                    client.wire.left_unread();
                }
                return Ok(Ended::Closes);
            }
            // What nobody wanted of this request has been read after all.
            client.wire.left_nothing();
        }
    }

    /// The head of the next request; none when no other comes, or when none is to come and nothing of it has.
    pub(super) async fn next_request(&mut self, is_going: impl Fn() -> bool) -> Result<Option<Asked>, Broken> {
        poll_fn(|cx| {
            loop {
                if !self.read.is_empty() {
                    match codec::read_request(&mut self.read, &mut self.room) {
                        Ok(Some(asked)) => return Poll::Ready(Ok(Some(asked))),
                        Ok(None) => {}
                        Err(error) => {
                            tracing::debug!(%error, "the guard has passed what is no head");
                            self.read.clear();
                            self.io.refuse(Refused::Malformed(RequestRefusal::RequestLine));
                        }
                    }
                }
                if let Some(refused) = self.io.take_refusal() {
                    return Poll::Ready(Ok(Some(refused_request(refused))));
                }
                match self.io.poll_passed(&mut self.read, 0, cx)? {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(Ok(None)),
                    Poll::Pending if is_going() && self.io.is_between_requests() => return Poll::Ready(Ok(None)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// The request that this head begins, and what its answer has to know of it.
    pub(super) fn begin(&mut self, asked: Asked) -> (Request<ClientBody>, To) {
        let Asked { head, framing, expects_continue, takes_trailers, keeps_connection } = asked;
        let (is_head, is_old) = (head.method == Method::HEAD, head.version == Version::HTTP_10);
        let to = To { is_head, is_old, takes_trailers, keeps_connection };
        let body = if framing == Framing::Length(0) {
            ClientBody::Empty
        } else {
            let body;
            (body, self.upload) = Upload::new(framing, expects_continue, &mut self.read);
            ClientBody::Http1(body)
        };
        (Request::from_parts(head, body), to)
    }

    /// Waits for this, reads what the client sends meanwhile, and sees when it leaves.
    async fn beside<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Broken> {
        let mut what = pin!(what);
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(done) = what.as_mut().poll(cx) {
                    return Poll::Ready(Ok(done));
                }
                self.say(cx)?;
                ready!(self.poll_input(cx))?;
            }
        })
        .await
    }

    /// Sends a word before the answer.
    fn say(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.has_word && self.output.poll_write(Pin::new(&mut self.io), cx)?.is_ready() {
            self.has_word = Pin::new(&mut self.io).poll_flush(cx)?.is_pending();
        }
        Ok(())
    }

    /// Ready when whoever takes the request's body has something new.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Some(upload) = &mut self.upload else {
            // The body that came to no end has been heard of, and nothing follows it.
            if !self.has_next {
                return Poll::Pending;
            }
            // Of the next request no more is read than came with this one, or tells that the client is there.
            if self.read.is_empty() && !ready!(self.io.poll_passed(&mut self.read, 0, cx))? {
                return Poll::Ready(Err(Broken::Left));
            }
            return Poll::Pending;
        };
        if upload.has_to_say_continue(&self.read) {
            self.output.tail().put_slice(codec::CONTINUE);
            self.has_word = true;
            return Poll::Ready(Ok(()));
        }
        let moved = ready!(upload.poll(&mut self.io, &mut self.read, cx));
        if moved != Moved::On {
            self.upload = None;
            self.has_next &= moved == Moved::Whole;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes an answer. Returns whether the connection goes on behind it, and what it goes on as when that is something else.
    pub(super) async fn answer(
        &mut self,
        answer: Response<AnswerBody>,
        to: &To,
        may_go_on: bool,
    ) -> Result<(bool, Option<Upgraded>), Broken> {
        let (mut head, mut body) = answer.into_parts();
        date(&mut head.headers);
        // A client that was never told to send its body may send it or not: what comes next cannot be known.
        let is_awaited = self.upload.as_mut().is_some_and(Upload::is_answered);
        //= RFC 9112 section 9.3
        //# A server MUST read the entire request message body or close the connection after sending its response
        let has_short_rest = self.upload.as_ref().is_none_or(Upload::has_short_rest);
        self.has_next &= !is_awaited && has_short_rest;
        let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        let to_write = AnswerHead {
            status: head.status,
            fields: &head.headers,
            length,
            is_to_head: to.is_head,
            is_to_old: to.is_old,
            may_go_on: may_go_on && to.keeps_connection && self.has_next,
        };
        let (framing, goes_on) = codec::write_answer(self.output.tail(), &to_write);
        let trailers = match framing {
            AnswerFraming::Chunked if to.takes_trailers => codec::announced_trailers(&head.headers),
            _ => Vec::new(),
        };
        self.room = head.headers;
        let upgraded = body.take_upgraded();
        if framing == AnswerFraming::Nothing && upgraded.is_none() {
            body.mark_whole();
        }
        let body = (framing != AnswerFraming::Nothing).then_some(body);
        self.send(Sending { body, framing, trailers, failed: None }).await?;
        if is_awaited {
            // It may never come.
            self.upload = None;
        }
        Ok((goes_on, upgraded))
    }

    /// Sends what is gathered and the rest of an answer, as fast as the client takes it.
    async fn send(&mut self, mut sending: Sending) -> Result<(), Broken> {
        poll_fn(|cx| {
            loop {
                sending.gather(&mut self.output, cx);
                let has_room = self.output.has_room();
                if self.output.poll_write(Pin::new(&mut self.io), cx)?.is_ready() {
                    if !has_room && sending.body.is_some() {
                        continue;
                    }
                    let is_flushed = Pin::new(&mut self.io).poll_flush(cx)?.is_ready();
                    if is_flushed && sending.body.is_none() {
                        return Poll::Ready(sending.failed.take().map_or(Ok(()), |error| Err(Broken::Answer(error))));
                    }
                }
                if let Some(body) = sending.body.as_mut().filter(|_| !has_room && self.upload.is_some()) {
                    body.poll_upload(cx);
                }
                ready!(self.poll_input(cx))?;
            }
        })
        .await
    }

    /// Reads the rest of a request's body while somebody takes it, and does so within this time. Where nobody does, and the
    /// connection goes on, the rest is read all the same, within bounds. Whether another request can follow.
    async fn finish_upload(&mut self, bound: Duration, goes_on: bool) -> Result<bool, Broken> {
        let mut patience = IdleTimer::new(bound);
        let mut lingering = None;
        poll_fn(|cx| {
            while let Some(upload) = &self.upload {
                let is_unwanted = upload.is_unwanted();
                if is_unwanted && !goes_on {
                    // It is read behind the end of ours, which the client may wait for.
                    (self.upload, self.has_next) = (None, false);
                    break;
                }
                let lingering = is_unwanted.then(|| lingering.get_or_insert_with(Lingering::new));
                match (self.poll_input(cx)?, lingering) {
                    (Poll::Ready(()), Some(lingering)) => lingering.moved(),
                    (Poll::Ready(()), None) => patience.moved = true,
                    (Poll::Pending, lingering) => {
                        ready!(match lingering {
                            Some(lingering) => lingering.poll_over(cx),
                            None => patience.poll_over(cx),
                        });
                        (self.upload, self.has_next) = (None, false);
                    }
                }
            }
            Poll::Ready(Ok(self.has_next))
        })
        .await
    }
}

/// What is served in the place of a request that was refused unread: it has the refusal and nothing of the client's.
fn refused_request(refused: Refused) -> Asked {
    let (mut head, ()) = Request::new(()).into_parts();
    head.extensions.insert(refused);
    Asked { head, framing: Framing::Length(0), expects_continue: false, takes_trailers: false, keeps_connection: false }
}

/// The rest of an answer.
struct Sending {
    /// Until its last frame was gathered.
    body: Option<AnswerBody>,
    framing: AnswerFraming,
    /// The names of the trailers that may follow.
    trailers: Vec<HeaderName>,
    /// It broke off; what came before is sent all the same.
    failed: Option<BoxError>,
}

impl Sending {
    /// Gathers what there is of the body, and of it as much as there is room for.
    fn gather(&mut self, output: &mut Output, cx: &mut Context<'_>) {
        while let Some(body) = &mut self.body
            && output.has_room()
        {
            match Pin::new(&mut *body).poll_frame(cx) {
                // The client has all that was announced, and does not wait for what tells the origin's end of it.
                Poll::Pending if self.framing == AnswerFraming::Length(0) => {
                    body.mark_whole();
                    self.body = None;
                }
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => {
                    let is_last = body.is_end_stream();
                    let ends = self.put(frame, is_last, output);
                    if ends {
                        self.body = None;
                    }
                }
                Poll::Ready(None) => {
                    self.end(None, output);
                    self.body = None;
                }
                Poll::Ready(Some(Err(error))) => {
                    self.failed = (self.framing != AnswerFraming::Length(0)).then_some(error);
                    self.body = None;
                }
            }
        }
    }

    /// Puts a frame behind what is gathered. Whether that was the last.
    fn put(&mut self, frame: Frame<Bytes>, is_last: bool, output: &mut Output) -> bool {
        let mut data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                self.end(frame.trailers_ref(), output);
                return true;
            }
        };
        match &mut self.framing {
            AnswerFraming::Chunked if !data.is_empty() => {
                output.tail().put_slice(codec::chunk_start(data.len()).as_bytes());
                output.push(data);
                output.tail().put_slice(codec::CHUNK_END);
            }
            AnswerFraming::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                output.push(data);
            }
            _ => output.push(data),
        }
        if is_last {
            self.end(None, output);
        }
        is_last
    }

    /// Nothing follows but trailers.
    fn end(&mut self, trailers: Option<&HeaderMap>, output: &mut Output) {
        match self.framing {
            AnswerFraming::Chunked => codec::write_last_chunk(output.tail(), trailers, &self.trailers),
            AnswerFraming::Length(1..) => self.failed = Some("it is shorter than was announced".into()),
            _ => {}
        }
    }
}
