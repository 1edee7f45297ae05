//! The inspector of a connector: it keeps requests that pass, and serves a page of this machine with them.
//! Uses `args` and `failure`.
//!
//! [`Inspection`] is what commands see. `collector` is the thread that reads what the connector copies. `server` has the
//! listener and its guards, `routes` the API, `page` the page. `replay` sends requests again.

mod collector;
mod page;
mod replay;
mod routes;
mod server;

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use sallyport_connector::{Capture, ConnectorEvent, Services};
use sallyport_inspect::{
    Change, Inspector, Now, Record, Source, Store,
    answer::{EdgeState, Frame, FrameEvent, Problem, Replay, State, Summary, TunnelState},
};
use sallyport_model::{OriginAddr, RequestRecord, TunnelId};
use time::OffsetDateTime;
use tokio::{net::TcpListener, sync::broadcast};

use crate::{args::inspect::InspectArgs, failure::Failure};

/// The first port that is tried.
const FIRST_PORT: u16 = 4_040;
/// How many ports are tried.
const TRIED_PORTS: u16 = 20;
/// How many events may wait for each page.
const MAX_QUEUED_EVENTS: usize = 1_024;
/// The bytes of the key.
const KEY_BYTES: usize = 32;

/// A running inspector; it ends with the command.
pub(crate) struct Inspection {
    shared: Arc<Shared>,
    capture: Capture,
    address: SocketAddr,
    key: String,
}

/// What the parts of the inspector share.
struct Shared {
    inspector: Mutex<Inspector>,
    /// The tunnels and edges, by what the connector has reported.
    known: Mutex<Known>,
    services: Mutex<Option<Services>>,
    /// Events for pages, as text.
    events: broadcast::Sender<Arc<str>>,
    /// Called when exchanges have changed, for the screen of the command.
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The number of the next request that is sent again.
    next_replay: AtomicU64,
}

#[derive(Default)]
struct Known {
    tunnels: HashMap<TunnelId, TunnelState>,
    /// Each edge, and whether it is connected.
    edges: Vec<EdgeState>,
}

impl Inspection {
    /// Starts the inspector, if it is wanted: where people look, or by its option.
    ///
    /// # Errors
    /// The address of the option cannot be used, or is that of a service.
    pub(crate) async fn start(
        args: &InspectArgs,
        is_usual: bool,
        origins: &[OriginAddr],
    ) -> anyhow::Result<Option<Self>> {
        if args.no_inspect || (args.inspect.is_none() && !is_usual) {
            return Ok(None);
        }
        let is_origin = |address: SocketAddr| origins.iter().any(|origin| is_at(origin, address));
        let listener = match args.inspect {
            Some(given) => {
                if is_origin(given.0) && given.0.port() != 0 {
                    return Err(Failure::usage(format!("{} is the inspector's own address, not a service", given.0))
                        .next("choose another port for the service, or for the inspector with --inspect")
                        .into());
                }
                TcpListener::bind(given.0).await.map_err(|error| {
                    Failure::usage(format!("the inspector cannot listen on {}: {error}", given.0))
                        .next("choose another port with --inspect, or go without with --no-inspect")
                })?
            }
            None => match first_free(is_origin).await {
                Some(listener) => listener,
                None => {
                    let last = FIRST_PORT + TRIED_PORTS - 1;
                    crate::output::note(&format!("note: no inspector: the ports {FIRST_PORT} to {last} are taken"));
                    return Ok(None);
                }
            },
        };
        let address = listener.local_addr()?;
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("the system gives no random bytes: {error}"))?;
        let key = BASE64_URL_SAFE_NO_PAD.encode(key);
        let shared = Arc::new(Shared {
            inspector: Mutex::new(Inspector::new(args.inspect_keep.0)),
            known: Mutex::default(),
            services: Mutex::default(),
            events: broadcast::channel(MAX_QUEUED_EVENTS).0,
            on_change: OnceLock::new(),
            next_replay: AtomicU64::new(1 << 63),
        });
        let (capture, captured) = Capture::new();
        collector::start(shared.clone(), captured)?;
        tokio::spawn(server::serve(listener, shared.clone(), key.clone()));
        Ok(Some(Self { shared, capture, address, key }))
    }

    /// The address of the page, with its key.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/#key={}", self.address, self.key)
    }

    /// What was kept, for the screen of the command.
    pub(crate) fn viewer(&self) -> Viewer {
        Viewer(self.shared.clone())
    }

    /// The capture for the connector.
    pub(crate) fn capture(&self) -> Capture {
        self.capture.clone()
    }

    /// The services of the connector, to which requests are sent again.
    pub(crate) fn set_services(&self, services: Services) {
        *self.shared.services.lock() = Some(services);
    }

    /// Names a tunnel: its socket and its service.
    pub(crate) fn name(&self, tunnel: TunnelId, socket: &str, target: &str) {
        let state =
            TunnelState { url: String::new(), socket_name: Some(socket.to_owned()), target: Some(target.to_owned()) };
        self.shared.known.lock().tunnels.insert(tunnel, state);
    }

    /// Why a service at this address is refused: it is the inspector itself.
    pub(crate) fn is_at(&self, origin: &OriginAddr) -> bool {
        is_at(origin, self.address)
    }

    /// Takes note of what the connector reports.
    pub(crate) fn observe(&self, event: &ConnectorEvent) {
        self.shared.observe(event);
    }
}

/// What was kept, for this process itself.
pub(crate) struct Viewer(Arc<Shared>);

impl Viewer {
    /// Reads what was kept. Nothing is added meanwhile, so it must not take long.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Store) -> R) -> R {
        read(self.0.inspector.lock().store())
    }

    /// Has this called when exchanges have changed. The first call counts.
    pub(crate) fn on_change(&self, changed: impl Fn() + Send + Sync + 'static) {
        drop(self.0.on_change.set(Box::new(changed)));
    }

    /// Begins to send an exchange again, and returns the number of the new one. Needs a tokio runtime.
    ///
    /// # Errors
    /// It cannot be sent again, or the person must confirm it.
    pub(crate) fn replay(&self, id: u64, is_confirmed: bool) -> Result<u64, Problem> {
        replay::start(&self.0, id, &Replay { confirm: is_confirmed, ..Replay::default() })
    }
}

/// Whether a service has this address, which is one of this machine.
fn is_at(origin: &OriginAddr, address: SocketAddr) -> bool {
    let is_local = match origin.host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified(),
        Err(_) => {
            let host = origin.host.trim_end_matches('.');
            host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost")
        }
    };
    is_local && origin.port == address.port()
}

/// The first free port that is not that of a service.
async fn first_free(is_origin: impl Fn(SocketAddr) -> bool) -> Option<TcpListener> {
    for port in FIRST_PORT..FIRST_PORT + TRIED_PORTS {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if !is_origin(address)
            && let Ok(listener) = TcpListener::bind(address).await
        {
            return Some(listener);
        }
    }
    None
}

/// The time of both clocks.
fn now() -> Now {
    let wall_ms = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
    Now { wall_ms: i64::try_from(wall_ms).unwrap_or(0), instant: Instant::now() }
}

impl Shared {
    /// Where the requests of a tunnel come from.
    fn source(&self, tunnel: TunnelId, edge: Option<String>, client: String) -> Source {
        let socket = self.known.lock().tunnels.get(&tunnel).and_then(|known| known.socket_name.clone());
        Source { tunnel: Some(tunnel.to_string()), socket, edge, client: Some(client) }
    }

    fn observe(&self, event: &ConnectorEvent) {
        match event {
            ConnectorEvent::Request(record) => return self.record(record),
            ConnectorEvent::Attached { tunnel, url, edge } => {
                let mut known = self.known.lock();
                known.tunnels.entry(*tunnel).or_default().url.clone_from(url);
                if let Some(edge) = edge {
                    known.set_edge(edge.as_str(), true);
                }
            }
            ConnectorEvent::Detached { tunnel, .. } => {
                self.known.lock().tunnels.remove(tunnel);
            }
            ConnectorEvent::Disconnected { edge: Some(edge), .. } | ConnectorEvent::Left { edge: Some(edge) } => {
                self.known.lock().set_edge(edge.as_str(), false);
            }
            _ => return,
        }
        self.send("state", &self.state());
    }

    fn record(&self, record: &RequestRecord) {
        let source = match record.tunnel {
            Some(tunnel) => self.source(tunnel, None, record.client.to_string()),
            None => Source { client: Some(record.client.to_string()), ..Source::default() },
        };
        let record = Record {
            request_id: record.request_id.clone(),
            at_ms: record.at_ms,
            method: record.method.clone(),
            target: record.target.clone(),
            status: record.status,
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            duration_us: record.duration_us,
            identity: record.identity.clone(),
            rule: record.rule.clone(),
            refused: record.refused.clone(),
            source,
        };
        let mut inspector = self.inspector.lock();
        inspector.record(record, now());
        self.tell(&mut inspector);
    }

    /// Tells the pages what has changed.
    fn tell(&self, inspector: &mut Inspector) {
        let changes = inspector.take_changes();
        if let Some(on_change) = self.on_change.get().filter(|_| !changes.is_empty()) {
            on_change();
        }
        if self.events.receiver_count() == 0 {
            return;
        }
        for change in changes {
            match change {
                Change::Exchange(id) => {
                    if let Some(exchange) = inspector.store().get(id) {
                        self.send("exchange", &Summary::from(exchange));
                    }
                }
                Change::Frame(id, number) => {
                    let exchange = inspector.store().get(id);
                    let frame = exchange.and_then(|found| found.frames.iter().find(|frame| frame.number == number));
                    if let Some(frame) = frame {
                        self.send("frame", &FrameEvent { exchange: id, frame: Frame::from(frame) });
                    }
                }
                Change::Cleared => self.send("cleared", &serde_json::json!({})),
            }
        }
    }

    fn send(&self, event: &str, data: &impl serde::Serialize) {
        if let Ok(data) = serde_json::to_string(data) {
            // Nobody may look.
            let _ = self.events.send(format!("event: {event}\ndata: {data}\n\n").into());
        }
    }

    fn state(&self) -> State {
        let known = self.known.lock();
        let mut tunnels: Vec<TunnelState> = known.tunnels.values().cloned().collect();
        tunnels.sort_by(|one, other| one.url.cmp(&other.url).then_with(|| one.target.cmp(&other.target)));
        let edges = known.edges.clone();
        drop(known);
        let inspector = self.inspector.lock();
        let (store, bounds) = (inspector.store(), inspector.store().bounds());
        State {
            tunnels,
            edges,
            exchanges: store.len() as u64,
            bytes: store.bytes() as u64,
            max_exchanges: bounds.exchanges as u64,
            max_bytes: bounds.bytes as u64,
            dropped: store.dropped(),
            missed_bytes: inspector.missed(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn next_replay(&self) -> u64 {
        self.next_replay.fetch_add(1, Ordering::Relaxed)
    }
}

impl Known {
    /// The greatest number of edges that are shown.
    const MAX_EDGES: usize = 64;

    fn set_edge(&mut self, name: &str, is_up: bool) {
        if let Some(edge) = self.edges.iter_mut().find(|edge| edge.name == name) {
            edge.is_up = is_up;
        } else if self.edges.len() < Self::MAX_EDGES {
            self.edges.push(EdgeState { name: name.to_owned(), is_up });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_and_that_of_a_service_are_passed_over() {
        let first = first_free(|_| false).await.unwrap().local_addr().unwrap().port();
        let held = first_free(|address| address.port() == first).await.unwrap();
        let second = held.local_addr().unwrap().port();
        assert_ne!(first, second, "it is that of a service");
        let third = first_free(|address| address.port() == first).await.unwrap().local_addr().unwrap().port();
        assert_ne!(second, third, "it is taken");
        assert!([first, second, third].iter().all(|port| (FIRST_PORT..FIRST_PORT + TRIED_PORTS).contains(port)));
        assert!(first_free(|_| true).await.is_none());
    }

    #[test]
    fn the_inspector_is_known_by_each_name_of_this_machine() {
        let address = SocketAddr::from(([127, 0, 0, 1], 4_040));
        let is_inspector = |host: &str, port| is_at(&OriginAddr { host: host.to_owned(), port }, address);
        for host in ["localhost", "LOCALHOST.", "x.localhost", "127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::"] {
            assert!(is_inspector(host, 4_040) && !is_inspector(host, 4_041), "{host}");
        }
        assert!(!is_inspector("10.0.0.1", 4_040) && !is_inspector("shop.internal", 4_040));
    }
}
