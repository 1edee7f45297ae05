//! Connections after a 101 response, and streams after an extended CONNECT: WebSockets to origins, carriers of tunnels.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use sallyport_bus::LiveFlow;
use sallyport_net::{Pace, RelayCounts, RelayEnd, relay};
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

/// The protocol that follows on a connection.
pub(crate) enum Upgrade {
    /// A WebSocket, relayed to the origin that sent the 101.
    Relay(Relay),
    /// The carrier of a tunnel.
    Carrier,
}

/// An accepted upgrade.
pub(crate) struct Upgraded {
    upgrade: Upgrade,
    context: Box<RequestContext>,
}

impl Upgraded {
    /// An upgrade of the request with this context.
    pub(crate) fn new(upgrade: Upgrade, context: Box<RequestContext>) -> Self {
        Self { upgrade, context }
    }

    /// Begins the protocol on an HTTP/1 connection when the 101 is written. `early_data` is what the client has sent
    /// since.
    pub(crate) fn start(
        self,
        server: &Arc<HttpServer>,
        client: Arc<Client>,
        stream: ClientStream,
        early_data: BytesMut,
    ) {
        let Self { upgrade, mut context } = self;
        match upgrade {
            Upgrade::Relay(relay) => {
                let relaying = relay.run(server, client, stream, early_data, context);
                sallyport_shards::spawn_near(server.state.config.shards.by_weight(Box::pin(relaying)));
            }
            Upgrade::Carrier => {
                context.mark_complete();
                drop(context);
                tunnel_websocket::start(server.clone(), client, stream, early_data);
            }
        }
    }

    /// Relays a WebSocket on one stream of an HTTP/2 or HTTP/3 connection, until its end. A carrier needs a connection
    /// of its own.
    pub(crate) async fn relay(self, server: &Arc<HttpServer>, client: Arc<Client>, stream: impl RelayEnd + Send) {
        match self.upgrade {
            Upgrade::Relay(relay) => relay.run(server, client, stream, BytesMut::new(), self.context).await,
            Upgrade::Carrier => {}
        }
    }
}

/// The origin's side of a WebSocket.
pub(crate) struct Relay {
    connection: Box<H1Connection>,
    origin: InFlight,
}

impl Relay {
    /// A relay over the connection that sent the 101.
    pub(crate) fn new(connection: Box<H1Connection>, origin: InFlight) -> Self {
        Self { connection, origin }
    }

    /// Relays bytes both ways until both sides have ended, one side fails, or the relay is cut.
    fn run<S: RelayEnd + Send>(
        self,
        server: &Arc<HttpServer>,
        client: Arc<Client>,
        stream: S,
        early_data: BytesMut,
        mut context: Box<RequestContext>,
    ) -> impl Future<Output = ()> + Send + use<S> {
        let running = server.state.running.enter();
        let mut phase = server.state.phase.subscribe();
        let guard = context.begin_live_flow(server);
        async move {
            let (_running, _client) = (running, client);
            let mut carried = RelayCounts::default();
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
                ended = self.relay_bytes((stream, early_data), pace, live, &mut carried) => ended,
                () = revoked => {
                    context.mark_revoked();
                    Err(io::Error::other("the access of the client was revoked"))
                }
                () = killed => {
                    context.mark_killed();
                    Err(io::Error::other("the flow was cut"))
                }
                () = crate::lifecycle::phase::cut(&mut phase) => Err(io::Error::other("the server shuts down")),
            };
            context.record_relayed(carried.forth, carried.back);
            match ended {
                Ok(()) => context.mark_complete(),
                Err(error) => tracing::debug!(id = %context.id(), %error, "a websocket ended early"),
            }
        }
    }

    /// Relays without buffers for idle directions: many WebSockets are open, and few carry bytes.
    async fn relay_bytes(
        self,
        (mut client, early_data): (impl RelayEnd, BytesMut),
        pace: Option<Meter>,
        live: Option<Arc<LiveFlow>>,
        carried: &mut RelayCounts,
    ) -> io::Result<()> {
        let _origin = self.origin;
        let (mut origin, early_response) = self.connection.into_stream();
        let mut pace = MeteredPace { pace, live };
        write_early_data(&mut origin, early_data, &mut pace, &mut carried.forth).await?;
        write_early_data(&mut client, early_response, &mut pace, &mut carried.back).await?;
        relay(&mut client, &mut origin, &mut pace, carried).await.map_err(|broke| broke.error)
    }
}

/// Writes bytes that came before the relay began.
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

/// Counts the relayed bytes against the socket's limits, and for the live flow.
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
