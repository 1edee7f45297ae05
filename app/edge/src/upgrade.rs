//! WebSockets: after a 101, of the origin or of our own, connections carry bytes that are no HTTP any more.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use http::Request;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sallyport_bus::LiveFlow;
use sallyport_http::forward;
use sallyport_net::{Carried, Pace, relay};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    Edge,
    body::ClientBody,
    bounds::Meter,
    carriers,
    connection::{self, Client, ClientStream},
    guarded_io::GuardedIo,
    h1::H1Connection,
    origin::InFlight,
    record::Ticket,
};

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
            let mut carried = Carried::default();
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
                ended = self.run(on_client, pace, live, &mut carried) => ended,
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
            ticket.count_relayed(carried.forth, carried.back);
            match ended {
                Ok(()) => ticket.complete(),
                Err(error) => tracing::debug!(id = %ticket.id(), %error, "a websocket ended early"),
            }
        });
    }

    /// Nothing is kept for bytes of which none are there: many WebSockets are open, and few of them carry anything.
    async fn run(
        self,
        on_client: OnUpgrade,
        pace: Option<Meter>,
        live: Option<Arc<LiveFlow>>,
        carried: &mut Carried,
    ) -> io::Result<()> {
        let _origin = self.origin;
        let (mut client, said) = taken(on_client).await?;
        let (mut origin, answered) = self.connection.into_stream();
        let mut pace = Watched { pace, live };
        pass_on(&mut origin, said, &mut pace, &mut carried.forth).await?;
        pass_on(&mut client, answered, &mut pace, &mut carried.back).await?;
        relay(&mut client, &mut origin, &mut pace, carried).await.map_err(|broke| broke.error)
    }
}

/// The client's connection after our 101, and what it has said since.
pub(crate) async fn taken(on_client: OnUpgrade) -> io::Result<(ClientStream, Vec<u8>)> {
    let upgraded = on_client.await.map_err(io::Error::other)?;
    let unknown = |_| io::Error::other("an unknown kind of connection");
    let parts = upgraded.downcast::<TokioIo<GuardedIo<ClientStream>>>().map_err(unknown)?;
    let (stream, unread) = parts.io.into_inner().into_upgraded();
    // What it lies in may be much larger than what it is.
    Ok((stream, [&parts.read_buf[..], &unread].concat()))
}

/// Writes what came before the relay could carry it.
async fn pass_on(
    to: &mut (impl AsyncWrite + Unpin),
    said: impl AsRef<[u8]>,
    pace: &mut Watched,
    carried: &mut u64,
) -> io::Result<()> {
    let said = said.as_ref();
    if said.is_empty() {
        return Ok(());
    }
    pace.moved(said.len());
    to.write_all(said).await?;
    to.flush().await?;
    *carried += said.len() as u64;
    Ok(())
}

/// What the bytes of a WebSocket count for, and how others see it go on.
struct Watched {
    pace: Option<Meter>,
    live: Option<Arc<LiveFlow>>,
}

impl Pace for Watched {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.pace.as_mut().map_or(Poll::Ready(()), |pace| pace.poll_ready(cx))
    }

    fn moved(&mut self, bytes: usize) {
        if let Some(live) = &self.live {
            live.moved(bytes);
        }
        if let Some(pace) = &mut self.pace {
            pace.moved(bytes);
        }
    }
}
