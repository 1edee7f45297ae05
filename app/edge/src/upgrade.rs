//! WebSockets: after a 101, of the origin or of our own, connections carry bytes that are no HTTP any more.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Request;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sallyport_bus::LiveFlow;
use sallyport_http::forward;
use sallyport_net::Pace as _;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{
    Edge,
    body::ClientBody,
    bounds::Meter,
    carriers,
    connection::{self, Client},
    h1::H1Connection,
    origin::InFlight,
    record::Ticket,
};

/// How much of a WebSocket is in our hands in each direction, in bytes.
const RELAY_BUFFER_BYTES: usize = 16 * 1024;

/// The client's side of a WebSocket upgrade, when the request asks for one.
pub(crate) fn wanted(request: &mut Request<ClientBody>) -> Option<OnUpgrade> {
    forward::is_websocket_upgrade(request.method(), request.version(), request.headers())
        .then(|| hyper::upgrade::on(request))
}

/// The WebSocket was declined, and its connection goes on. Behind its last answer the server does not end it, as it does
/// with others, but gives it away as if it had been upgraded; so it is ended here. An end of TLS without `close_notify`
/// would look as if something were missing (RFC 8446, section 6.1).
pub(crate) fn declined(edge: &Arc<Edge>, client: Arc<Client>, on_client: OnUpgrade) {
    let running = edge.running.enter();
    tokio::spawn(async move {
        let _running = running;
        if let Ok(upgraded) = on_client.await {
            connection::end(TokioIo::new(upgraded), &client).await;
        }
    });
}

/// What becomes of a connection after our 101.
pub(crate) enum Upgrade {
    /// It goes on to the origin that said 101.
    Relay(Relay),
    /// It is a connector's, and carries a tunnel.
    Carrier,
}

impl Upgrade {
    /// Begins, as soon as the 101 is out.
    pub(crate) fn start(self, edge: &Arc<Edge>, client: Arc<Client>, on_client: OnUpgrade, mut ticket: Box<Ticket>) {
        match self {
            Self::Relay(relay) => relay.start(edge, client, on_client, ticket),
            Self::Carrier => {
                ticket.complete();
                carriers::start(edge.clone(), client, on_client);
            }
        }
    }
}

/// The origin's side of a WebSocket that was agreed on.
pub(crate) struct Relay {
    connection: Box<H1Connection>,
    origin: InFlight,
}

impl Relay {
    /// A relay to this origin, over the connection that said 101.
    pub(crate) fn new(connection: Box<H1Connection>, origin: InFlight) -> Self {
        Self { connection, origin }
    }

    /// Carries bytes both ways until both sides have ended, one has failed, or the edge has no more time.
    fn start(self, edge: &Arc<Edge>, client: Arc<Client>, on_client: OnUpgrade, mut ticket: Box<Ticket>) {
        let running = edge.running.enter();
        let mut phase = edge.phase.subscribe();
        let stay = ticket.stays(edge);
        tokio::spawn(async move {
            let (_running, _client) = (running, client);
            let mut counts = (0, 0);
            let pace = ticket.pass().map(|pass| pass.meter().clone());
            let mut stake = ticket.take_stake();
            let revoked = poll_fn(|cx| stake.poll_over(cx));
            let live = stay.as_ref().map(|stay| stay.flow().clone());
            let killed = async {
                match &stay {
                    Some(stay) => stay.cut().await,
                    None => std::future::pending().await,
                }
            };
            let ended = tokio::select! {
                ended = self.run(on_client, pace, live, &mut counts) => ended,
                () = revoked => {
                    ticket.revoked();
                    Err(io::Error::other("who it belongs to may not come in any more"))
                }
                () = killed => {
                    ticket.killed();
                    Err(io::Error::other("somebody cut it"))
                }
                () = crate::drain::cut(&mut phase) => Err(io::Error::other("the edge shuts down")),
            };
            ticket.count_relayed(counts.0, counts.1);
            match ended {
                Ok(()) => ticket.complete(),
                Err(error) => tracing::debug!(id = %ticket.id(), %error, "a websocket ended early"),
            }
        });
    }

    async fn run(
        self,
        on_client: OnUpgrade,
        pace: Option<Meter>,
        live: Option<Arc<LiveFlow>>,
        counts: &mut (u64, u64),
    ) -> io::Result<()> {
        let _origin = self.origin;
        let client = on_client.await.map_err(io::Error::other)?;
        let (origin, early) = self.connection.into_stream();
        let mut client =
            Counted { inner: TokioIo::new(client), read: &mut counts.0, pace: pace.clone(), live: live.clone() };
        let mut origin = Counted { inner: origin, read: &mut counts.1, pace, live };
        if !early.is_empty() {
            *origin.read += early.len() as u64;
            client.write_all(&early).await?;
        }
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut origin, RELAY_BUFFER_BYTES, RELAY_BUFFER_BYTES)
            .await
            .map(|_| ())
    }
}

/// Counts what is read, so that the count survives an error.
struct Counted<'a, S> {
    inner: S,
    read: &'a mut u64,
    pace: Option<Meter>,
    live: Option<Arc<LiveFlow>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<'_, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(pace) = &mut self.pace {
            ready!(pace.poll_ready(cx));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        *self.read += read as u64;
        if let Some(live) = &self.live {
            live.moved(read);
        }
        if let Some(pace) = &mut self.pace {
            pace.moved(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
