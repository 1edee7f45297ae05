//! WebSockets: after a 101, of the origin or of our own, connections carry bytes that are no HTTP any more.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use sallyport_bus::LiveFlow;
use sallyport_net::{Carried, Pace, relay};
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

    /// Begins, now that the 101 is out; `early_data` is what the client has said since.
    pub(crate) fn start(
        self,
        server: &Arc<HttpServer>,
        client: Arc<Client>,
        stream: ClientStream,
        early_data: BytesMut,
    ) {
        let Self { upgrade, mut context } = self;
        match upgrade {
            Upgrade::Relay(relay) => relay.start(server, client, stream, early_data, context),
            Upgrade::Carrier => {
                context.mark_complete();
                drop(context);
                tunnel_websocket::start(server.clone(), client, stream, early_data);
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
        early_data: BytesMut,
        mut context: Box<RequestContext>,
    ) {
        let running = server.state.running.enter();
        let mut phase = server.state.phase.subscribe();
        let guard = context.begin_live_flow(server);
        let shards = &server.state.config.shards;
        sallyport_shards::spawn_near(shards.by_weight(Box::pin(async move {
            let (_running, _client) = (running, client);
            let mut carried = Carried::default();
            let pace = context.pass().map(|pass| pass.meter().clone());
            let mut revocation = context.take_revocation();
            let revoked = poll_fn(|cx| revocation.poll_over(cx));
            let live = guard.as_ref().map(|guard| guard.flow().clone());
            let killed = async {
                match &guard {
                    Some(guard) => guard.cut().await,
                    None => std::future::pending().await,
                }
            };
            let ended = tokio::select! {
                ended = self.run((stream, early_data), pace, live, &mut carried) => ended,
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
        (mut client, early_data): (ClientStream, BytesMut),
        pace: Option<Meter>,
        live: Option<Arc<LiveFlow>>,
        carried: &mut Carried,
    ) -> io::Result<()> {
        let _origin = self.origin;
        let (mut origin, early_response) = self.connection.into_stream();
        let mut pace = MeteredPace { pace, live };
        write_early_data(&mut origin, early_data, &mut pace, &mut carried.forth).await?;
        write_early_data(&mut client, early_response, &mut pace, &mut carried.back).await?;
        relay(&mut client, &mut origin, &mut pace, carried).await.map_err(|broke| broke.error)
    }
}

/// Writes what came before the relay could carry it.
async fn write_early_data(
    to: &mut (impl AsyncWrite + Unpin),
    early_data: impl AsRef<[u8]>,
    pace: &mut MeteredPace,
    carried: &mut u64,
) -> io::Result<()> {
    let early_data = early_data.as_ref();
    if early_data.is_empty() {
        return Ok(());
    }
    pace.moved(early_data.len());
    to.write_all(early_data).await?;
    to.flush().await?;
    *carried += early_data.len() as u64;
    Ok(())
}

/// What the bytes of a WebSocket count for, and how others see it go on.
struct MeteredPace {
    pace: Option<Meter>,
    live: Option<Arc<LiveFlow>>,
}

impl Pace for MeteredPace {
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
