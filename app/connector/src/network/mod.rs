//! A machine of a network: holds its packet carrier and its TUN device.
//!
//! May use `dial`. [`join`] returns when the machine is stopped, or refused for good by the edge or by [`Control`]. The
//! device stays while the edge is away: programs then see silence instead of a changed route.

mod control;
mod packets;
mod routes;

use std::{io, sync::Arc, time::Duration};

use ipnet::IpNet;
use sallyport_net::{Outbound, Shutdown};
use sallyport_tun::{Device, MAX_DEVICE_NAME_BYTES, TunError};
use sallyport_tunnel::{
    BoxedCarrier, Dial as _,
    packets::{NetworkRefused, PacketQueue, PacketsEnd, carry_packets, join_network},
};
pub use sallyport_wire::JoinNetwork;
use sallyport_wire::{Backoff, NOT_YET_KNOWN, NetworkJoined, Refusal, Side};
use tokio::sync::{mpsc, watch};

pub use self::control::Control;
use self::{
    control::{Answer, Question, ask},
    packets::{DeviceWriter, take_packets},
};
use crate::{
    dial::{Edge, EdgeAddress, Links, TransportChoice},
    services::Services,
};

/// The options of a machine.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Name and version of the program.
    pub agent: String,
    /// The edge that the machine dials.
    pub edge: NetworkEdge,
    /// The transport; several links at once are for tunnels.
    pub transport: TransportChoice,
    /// The machine and its credential.
    pub machine: JoinNetwork,
    /// After how long a silent edge gets a ping.
    pub keepalive: Duration,
    /// The name of the device; `None`: `sp-` and the beginning of the network's name.
    pub device: Option<String>,
    /// Whether routes of other machines lead to the device, besides the ranges of the network.
    pub accepts_routes: bool,
}

/// The edge of a machine, and the way to it.
#[derive(Debug, Clone)]
pub struct NetworkEdge {
    /// The host; its certificate must be for this name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The QUIC port, if known.
    pub quic_port: Option<u16>,
    /// TLS to the edge, with the trusted roots.
    pub tls: Arc<rustls::ClientConfig>,
    /// How connections leave this machine.
    pub outbound: Outbound,
}

/// What happens to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkEvent {
    /// The machine has joined, and the device is up.
    Joined {
        /// The machine's place, with the routes that it accepts.
        place: NetworkJoined,
        /// The name of the device.
        device: String,
        /// The transport of the carrier.
        transport: &'static str,
    },
    /// The edge is away; the machine joins again after this time.
    Lost {
        /// Why, as a sentence without a full stop.
        why: String,
        /// The time.
        again_in: Duration,
    },
    /// Other machines have these routes, and this machine accepts none.
    RoutesNotAccepted(Vec<IpNet>),
    /// A route of another machine is not used, because the way to the edge would go by it.
    RouteLeftOut(IpNet),
    /// A route of another machine is not used, because the kernel refuses it.
    RouteRefused(String),
}

/// Why a machine is in its network no more.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The edge or control refuses the machine for good.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// There is no device.
    #[error(transparent)]
    Device(#[from] TunError),
    /// The way to the edge would go by the network itself.
    #[error("the range {0} of the network has {1}, by which this machine reaches the edge")]
    Swallows(IpNet, std::net::IpAddr),
}

/// How the carrier of a machine ended.
enum Outcome {
    /// The shutdown has begun.
    Stopped,
    /// The machine joins again.
    Lost(Loss),
}

/// Why a machine is out of its network, and joins again.
struct Loss {
    /// As a sentence without a full stop.
    why: String,
    /// What control may know about it.
    question: Option<Question>,
}

struct Machine {
    options: NetworkOptions,
    edge: Edge,
    events: mpsc::Sender<NetworkEvent>,
    device: Option<Device>,
    addresses: Vec<IpNet>,
}

/// Holds a machine in its network until the shutdown.
///
/// # Errors
/// The edge refuses the machine for good, control says that it was removed, or there is no device.
pub async fn join(
    options: NetworkOptions,
    control: &impl Control,
    events: mpsc::Sender<NetworkEvent>,
    shutdown: Shutdown,
) -> Result<(), NetworkError> {
    let edge = edge_of(&options);
    let mut machine = Machine { options, edge, events, device: None, addresses: Vec::new() };
    let mut backoff = Backoff::default();
    loop {
        let outcome = tokio::select! {
            () = shutdown.wait() => Outcome::Stopped,
            connected = machine.connect() => match connected? {
                Ok((carrier, place)) => {
                    backoff.reset();
                    machine.carry(carrier, place, &shutdown).await?
                }
                Err(loss) => Outcome::Lost(loss),
            },
        };
        let Outcome::Lost(Loss { why, question }) = outcome else { break };
        let again_in = backoff.next(random());
        machine.report(NetworkEvent::Lost { why, again_in }).await;
        let answer = async { ask(control, question?).await };
        let waited = async { tokio::join!(answer, tokio::time::sleep(again_in)).0 };
        tokio::select! {
            () = shutdown.wait() => break,
            answer = waited => match answer {
                Some(Answer::Removed) => return Err(NetworkError::Refused(removed())),
                Some(Answer::Edge(edge)) => machine.move_to(edge).await,
                None => {}
            },
        }
    }
    machine.edge.close().await;
    Ok(())
}

impl Machine {
    /// Dials the edge and joins. The inner error is one after which the machine tries again.
    async fn connect(&self) -> Result<Result<(BoxedCarrier, NetworkJoined), Loss>, NetworkError> {
        let lost = |error: &io::Error, question| Ok(Err(Loss { why: error.to_string(), question }));
        let mut carrier = match self.edge.dial_control().await {
            Ok(carrier) => carrier,
            Err(error) => return lost(&error, Some(Question::Edge)),
        };
        match join_network(&mut carrier, &self.options.machine).await {
            Ok(place) => Ok(Ok((carrier, place))),
            Err(error) => match refusal(&error) {
                Some(refusal) if !refusal.retry => Err(NetworkError::Refused(refusal.clone())),
                Some(refusal) => lost(&error, (refusal.code == NOT_YET_KNOWN).then_some(Question::IsRemoved)),
                None => lost(&error, Some(Question::Edge)),
            },
        }
    }

    /// Dials this edge from now on.
    async fn move_to(&mut self, edge: NetworkEdge) {
        tracing::debug!(host = edge.host, port = edge.port, "control names another edge");
        self.edge.close().await;
        self.options.edge = edge;
        self.edge = edge_of(&self.options);
    }

    /// Carries packets until the carrier ends.
    async fn carry(
        &mut self,
        carrier: BoxedCarrier,
        mut place: NetworkJoined,
        shutdown: &Shutdown,
    ) -> Result<Outcome, NetworkError> {
        let way_out = match self.way_out().await {
            Ok(way_out) => way_out,
            // Without its addresses, routes of others could swallow the way to the edge.
            Err(error) => {
                let why = format!("the address of the edge is not found: {error}");
                return Ok(Outcome::Lost(Loss { why, question: None }));
            }
        };
        routes::check(&place.addresses, &way_out)?;
        if self.device.is_none() || self.addresses != place.addresses {
            // The former device goes first: both have the same name.
            self.device = None;
            let name = self.options.device.clone().unwrap_or_else(|| device_name(&place.network));
            self.device = Some(Device::open(&name, &place.addresses, place.mtu_bytes).await?);
            self.addresses.clone_from(&place.addresses);
        }
        let Some(device) = &self.device else { return Ok(Outcome::Stopped) };
        place.routes = self.accepted(place.routes).await;
        self.set_routes(device, &place.routes, &way_out).await;
        let joined = NetworkEvent::Joined { place, device: device.name().to_owned(), transport: self.edge.transport() };
        self.report(joined).await;
        let queue = PacketQueue::default();
        let (places, mut changes) = watch::channel(None);
        let mut writer = DeviceWriter { device, places };
        let follows = async {
            while changes.changed().await.is_ok() {
                let place: Option<NetworkJoined> = changes.borrow_and_update().clone();
                if let Some(place) = place {
                    let routes = self.accepted(place.routes).await;
                    self.set_routes(device, &routes, &way_out).await;
                }
            }
            std::future::pending::<()>().await;
        };
        let stops = async {
            shutdown.wait().await;
            queue.end(None);
            std::future::pending::<()>().await;
        };
        let end = tokio::select! {
            end = carry_packets(carrier, &queue, Side::Connector, self.options.keepalive, &mut writer) => end,
            error = take_packets(device, &queue) => {
                return Err(TunError::Open(device.name().to_owned(), error).into());
            }
            () = follows => PacketsEnd::Ended,
            () = stops => PacketsEnd::Ended,
        };
        match end {
            PacketsEnd::Ended => Ok(Outcome::Stopped),
            PacketsEnd::Refused(refusal) if refusal.retry => {
                Ok(Outcome::Lost(Loss { why: refusal.message, question: None }))
            }
            PacketsEnd::Refused(refusal) => Err(NetworkError::Refused(refusal)),
            PacketsEnd::Lost(why) => Ok(Outcome::Lost(Loss { why, question: None })),
        }
    }

    /// Those of these routes of others that this machine accepts: all or none.
    async fn accepted(&self, routes: Vec<IpNet>) -> Vec<IpNet> {
        if self.options.accepts_routes || routes.is_empty() {
            return routes;
        }
        self.report(NetworkEvent::RoutesNotAccepted(routes)).await;
        Vec::new()
    }

    /// Has these routes of others lead to the device, but those by which this machine reaches the edge.
    async fn set_routes(&self, device: &Device, routes: &[IpNet], way_out: &[std::net::IpAddr]) {
        let (used, left_out) = routes::split(routes, way_out);
        for route in left_out {
            self.report(NetworkEvent::RouteLeftOut(route)).await;
        }
        for error in device.set_routes(&used).await {
            self.report(NetworkEvent::RouteRefused(error.to_string())).await;
        }
    }

    /// The addresses to which connections to the edge go: those of the edge, or of the proxy.
    async fn way_out(&self) -> io::Result<Vec<std::net::IpAddr>> {
        let NetworkEdge { host, port, outbound, .. } = &self.options.edge;
        let (host, port) = match &outbound.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (host.as_str(), *port),
        };
        let found = sallyport_net::resolve(host, port).await?;
        Ok(found.into_iter().map(|address| address.ip()).collect())
    }

    async fn report(&self, event: NetworkEvent) {
        // Nobody listens: the machine works all the same.
        let _ = self.events.send(event).await;
    }
}

fn edge_of(options: &NetworkOptions) -> Edge {
    let NetworkEdge { host, port, quic_port, tls, outbound } = options.edge.clone();
    Edge::new(EdgeAddress {
        host,
        port,
        addresses: Vec::new(),
        quic_port,
        agent: options.agent.clone(),
        tls,
        outbound,
        choice: options.transport,
        has_links: false,
        links: Links::new(None),
        services: Services::new(mpsc::channel(1).0, None).0,
    })
}

fn refusal(error: &io::Error) -> Option<&Refusal> {
    let refused = error.get_ref()?.downcast_ref::<NetworkRefused>()?;
    Some(&refused.0)
}

/// What an edge says as well when it removes a machine.
fn removed() -> Refusal {
    Refusal::new("removed", "the machine was removed from its network", false)
}

/// The name of the device of a network.
fn device_name(network: &str) -> String {
    let mut name = format!("sp-{network}");
    name.truncate(name.floor_char_boundary(MAX_DEVICE_NAME_BYTES));
    name
}

/// 64 random bits for the backoff. Without them, all machines would come back at once, and would still come back.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
