//! WebSockets: after a 101, of the origin or of our own, connections carry bytes that are no HTTP any more.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use sallyport_bus::LiveFlow;
use sallyport_net::{Pace, RelayCounts, relay};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    http::{
        connection::{Client, ClientStream},
        context::RequestContext,
        server::HttpServer,
        tunnel_websocket,
    },
    origins::{http::h1::H1Connection, origin::InFlight},
    policy::limits::Meter,
};

/// What becomes of a connection after our 101.
pub(crate) enum Upgrade {
    /// It goes on to the origin that said 101.
    Relay(Relay),
    /// It is a connector's, and carries a tunnel.
    Carrier,
}

/// An upgrade that was agreed on.
pub(crate) struct Upgraded {
    upgrade: Upgrade,
    context: Box<RequestContext>,
}

impl Upgraded {
    /// This becomes of the connection; the context is that of the request that asked for it.
    pub(crate) fn new(upgrade: Upgrade, context: Box<RequestContext>) -> Self {
        Self { upgrade, context }
    }

    /// Begins, now that the 101 is out; `said` is what the client has said since.
    pub(crate) fn start(self, server: &Arc<HttpServer>, client: Arc<Client>, stream: ClientStream, said: BytesMut) {
        let Self { upgrade, mut context } = self;
        match upgrade {
            Upgrade::Relay(relay) => relay.start(server, client, stream, said, context),
            Upgrade::Carrier => {
                context.mark_complete();
                drop(context);
                tunnel_websocket::start(server.clone(), client, stream, said);
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

    /// Carries bytes both ways until both sides have ended, one has failed, or the server has no more time.
    fn start(
        self,
        server: &Arc<HttpServer>,
        client: Arc<Client>,
        stream: ClientStream,
        said: BytesMut,
        mut context: Box<RequestContext>,
    ) {
        let running = server.state.running.enter();
        let mut phase = server.state.phase.subscribe();
        let stay = context.stays(server);
        let shards = &server.state.config.shards;
        sallyport_shards::spawn_near(shards.by_weight(Box::pin(async move {
            let (_running, _client) = (running, client);
            let mut carried = RelayCounts::default();
            let pace = context.pass().map(|pass| pass.meter().clone());
            let mut revocation = context.take_revocation();
            let revoked = poll_fn(|cx| revocation.poll_over(cx));
            let live = stay.as_ref().map(|stay| stay.flow().clone());
            let killed = async {
                match &stay {
                    Some(stay) => stay.cut().await,
                    None => std::future::pending().await,
                }
            };
            let ended = tokio::select! {
                ended = self.run((stream, said), pace, live, &mut carried) => ended,
                () = revoked => {
                    context.mark_revoked();
                    Err(io::Error::other("who it belongs to may not come in any more"))
                }
                () = killed => {
                    context.mark_killed();
                    Err(io::Error::other("somebody cut it"))
                }
                () = crate::lifecycle::phase::cut(&mut phase) => Err(io::Error::other("the server shuts down")),
            };
            context.record_relayed(carried.forth, carried.back);
            match ended {
                Ok(()) => context.mark_complete(),
                Err(error) => tracing::debug!(id = %context.id(), %error, "a websocket ended early"),
            }
        })));
    }

    /// Nothing is kept for bytes of which none are there: many WebSockets are open, and few of them carry anything.
    async fn run(
        self,
        (mut client, said): (ClientStream, BytesMut),
        pace: Option<Meter>,
        live: Option<Arc<LiveFlow>>,
        carried: &mut RelayCounts,
    ) -> io::Result<()> {
        let _origin = self.origin;
        let (mut origin, answered) = self.connection.into_stream();
        let mut pace = Watched { pace, live };
        pass_on(&mut origin, said, &mut pace, &mut carried.forth).await?;
        pass_on(&mut client, answered, &mut pace, &mut carried.back).await?;
        relay(&mut client, &mut origin, &mut pace, carried).await.map_err(|broke| broke.error)
    }
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
