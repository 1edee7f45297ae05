//! How an edge comes to its certificates: by a token once, and by its certificates from then on.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sallyport_api::{
    BootstrapRequest, BootstrapResponse, EdgeBootstrap, EdgeCertificates, JoinEdge, JoinToken, JoinedEdge, RenewEdge,
};
use sallyport_bus::{Nats, Orders};
use sallyport_edge::MeshTls;
use sallyport_http::page::Site;
use sallyport_model::EdgeId;
use sallyport_net::{Certificates, Trust, client_config, client_config_of_node};
use sallyport_pki::{KeyPair, PKCS_ECDSA_P256_SHA256, certificate_request};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    args::EdgeArgs,
    control_link::{ControlLink, LinkError},
    mesh,
    state::{self, EdgeState},
};
use crate::{
    args::site::site_of,
    failure::{Failure, Kind},
};

/// How far this machine's clock may be from control's before that is said.
const MAX_SKEW_SECONDS: u64 = 60;
/// The code by which control says that this edge is none of the installation any more.
const REMOVED: &str = "edge-removed";
/// How often new certificates are asked for that could not be had.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// How often control is asked what has changed, and it is looked whether the time has come: clocks may be put right
/// meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Joins with the token of the command line.
///
/// # Errors
/// What kept it from joining, in a sentence.
pub(super) async fn join(args: &EdgeArgs) -> anyhow::Result<EdgeState> {
    let Some(token) = &args.join else {
        return Err(Failure::usage("this edge has not joined an installation yet")
            .next("give it a token with --join TOKEN; `sallyport edge token create` makes one")
            .into());
    };
    let token: JoinToken =
        token.parse().map_err(|error: sallyport_api::JoinTokenError| Failure::usage(error.to_string()))?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let request = certificate_request(&key)?;
    let tls = client_config(&Trust::Pinned(token.fingerprint.clone()), &[b"h2"])?;
    let link = ControlLink::new(token.controls.clone(), tls);
    let wish = JoinEdge { secret: token.secret, name: args.name.clone(), region: args.region.clone(), request };
    let joined: JoinedEdge = link.ask("/node/v1/join", &wish).await.map_err(|error| refused(&error))?;
    warn_of_skew(joined.now);
    info!(edge = %joined.name, region = %joined.region, domain = joined.bootstrap.domain, "joined");
    Ok(EdgeState::new(joined, key.serialize_pem(), now()))
}

fn refused(error: &LinkError) -> Failure {
    match error {
        LinkError::Refused(problem) => {
            Failure::new(Kind::Refused, format!("control does not let this edge join: {problem}"))
        }
        LinkError::Unreachable(why) if why.contains("root certificate is") || why.contains("pinned") => {
            Failure::new(Kind::Unreachable, format!("control is not the one that the join token names: {why}"))
                .next("make a new token at the control that is meant")
        }
        other => Failure::new(Kind::Unreachable, format!("this edge cannot join: {other}"))
            .next("is control running, and reachable at the address in the token?"),
    }
}

fn warn_of_skew(theirs: i64) {
    let ours = now();
    if ours.abs_diff(theirs) > MAX_SKEW_SECONDS {
        let (seconds, direction) = (ours.abs_diff(theirs), if ours > theirs { "ahead of" } else { "behind" });
        warn!(seconds, "the clock of this machine is {direction} control's: set one of them right");
    }
}

/// The way to control for an edge that has certificates.
///
/// # Errors
/// They cannot be used.
pub(super) fn link(state: &EdgeState) -> anyhow::Result<ControlLink> {
    let tls = client_config_of_node(&state.world.node_ca, &state.certificates.node, state.key.expose())?;
    // Not all edges come to the same one first.
    let mut controls = state.world.controls.clone();
    if !controls.is_empty() {
        let first = usize::from(state.id.as_bytes()[15]) % controls.len();
        controls.rotate_left(first);
    }
    Ok(ControlLink::new(controls, tls))
}

/// What control's clock showed when it was last heard, and when that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ControlClock {
    shown: i64,
    at: Instant,
}

impl ControlClock {
    pub(super) fn new(shown: i64) -> Self {
        Self { shown, at: Instant::now() }
    }

    /// When it shows this much, in seconds since 1970. A moment that is too long ago to be told is the one when it was
    /// heard.
    pub(super) fn moment(self, seconds: i64) -> Instant {
        let left = Duration::from_secs(seconds.abs_diff(self.shown));
        let moment = if seconds < self.shown { self.at.checked_sub(left) } else { self.at.checked_add(left) };
        moment.unwrap_or(self.at)
    }
}

/// Keeps the certificates of an edge from ending.
pub(super) struct Renewal {
    pub(super) dir: PathBuf,
    pub(super) state: EdgeState,
    pub(super) link: ControlLink,
    pub(super) nats: Nats,
    pub(super) served: Arc<Certificates>,
    /// Whether the log says that the clocks differ.
    pub(super) skew_logged: bool,
    /// When the certificates end, in seconds since 1970: for whoever says so.
    pub(super) ends_at: Arc<AtomicI64>,
    pub(super) mesh: MeshTls,
    /// What control wants of edges: when nothing is wanted of this one any more, control is asked whether it was
    /// removed.
    pub(super) orders: Orders,
    /// Whether control says that this edge was removed.
    pub(super) removed: watch::Sender<bool>,
    /// What control's clock shows.
    pub(super) clock: watch::Sender<Option<ControlClock>>,
    /// Whose pages visitors see.
    pub(super) site: watch::Sender<Arc<Site>>,
}

impl Renewal {
    /// Renews at once, so that what else control tells is known, and whenever two thirds of the certificates' life are
    /// over. Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let mut is_first = true;
        loop {
            let EdgeCertificates { not_after, .. } = self.state.certificates;
            let due = self.state.certified_at + (not_after - self.state.certified_at) * 2 / 3;
            if !is_first && now() < due && now() >= self.state.certified_at {
                let left = u64::try_from(due - now()).unwrap_or(0);
                let pause = LOOK_EVERY.min(Duration::from_secs(left.max(1)));
                // Whatever comes first.
                let _ = tokio::time::timeout(pause, forgotten(&self.orders, self.state.id)).await;
                if let Err(error) = self.look().await {
                    tracing::debug!(error = format!("{error:#}"), "what has changed at control is not known");
                }
                continue;
            }
            match self.renew().await {
                Ok(()) => is_first = false,
                Err(_) if *self.removed.borrow() => is_first = false,
                Err(error) => {
                    let ended = now() >= not_after;
                    let next =
                        if ended { "join again with a new token, in an empty data directory" } else { "trying again" };
                    let error = format!("{error:#}");
                    warn!(error, ended, "the certificates of this edge are not renewed: {next}");
                    tokio::time::sleep(RENEW_AGAIN).await;
                    // What is known is good enough until it is due.
                    is_first &= now() < due;
                }
            }
        }
    }

    /// Learns which controls there are, and what else has changed.
    async fn look(&mut self) -> anyhow::Result<()> {
        let told = self.link.ask("/node/v1/world", &BootstrapRequest::default()).await;
        let BootstrapResponse { bootstrap: world, now } = self.noting_removal(told)?;
        self.warn_of_skew(now);
        if world.ca != self.state.world.ca {
            // What clients are shown is of a root that they will not trust any more.
            info!("the installation has another root: certificates are asked for");
            return self.renew().await;
        }
        if world != self.state.world {
            self.apply(&world);
            let mut state = self.state.clone();
            state.world = world;
            save(&state, &self.dir).await?;
            self.state = state;
        }
        Ok(())
    }

    /// Learns from an answer whether this edge was removed; no answer says nothing of it.
    fn noting_removal<T>(&self, answer: Result<T, LinkError>) -> Result<T, LinkError> {
        let is_removed = match &answer {
            Ok(_) => false,
            Err(LinkError::Refused(problem)) if problem.code == REMOVED => true,
            Err(_) => return answer,
        };
        if self.removed.send_if_modified(|was| std::mem::replace(was, is_removed) != is_removed) {
            if is_removed {
                warn!(
                    "this edge was removed from the installation: its connectors and clients are sent elsewhere; stop it, or have \
                     it join again with a new token, in an empty data directory"
                );
            } else {
                info!("this edge is of the installation again");
            }
        }
        answer
    }

    /// Takes over what control says now.
    fn apply(&self, world: &EdgeBootstrap) {
        self.link.know(&world.controls);
        self.site.send_replace(Arc::new(site_of(world)));
        let of_bus = |world: &EdgeBootstrap| {
            let EdgeBootstrap { bus, bus_user, bus_password, bus_token, bus_ca, .. } = world.clone();
            (bus, bus_user, bus_password, bus_token, bus_ca)
        };
        if of_bus(world) != of_bus(&self.state.world) {
            self.nats.use_credentials(state::bus_credentials(world));
            info!(
                "control names the bus otherwise: other credentials hold from the next connection on, another place from the next \
                 start"
            );
        }
    }

    /// Keeps control's clock in mind, and warns of clocks that differ, once for as long as they do.
    fn warn_of_skew(&mut self, theirs: i64) {
        self.clock.send_replace(Some(ControlClock::new(theirs)));
        let differs = now().abs_diff(theirs) > MAX_SKEW_SECONDS;
        if differs && !std::mem::replace(&mut self.skew_logged, true) {
            warn_of_skew(theirs);
        }
        self.skew_logged &= differs;
    }

    async fn renew(&mut self) -> anyhow::Result<()> {
        let key = KeyPair::from_pem(self.state.key.expose())?;
        let request = RenewEdge { request: certificate_request(&key)? };
        let joined = self.link.ask("/node/v1/renew", &request).await;
        let joined: JoinedEdge = self.noting_removal(joined)?;
        self.warn_of_skew(joined.now);
        self.apply(&joined.bootstrap);
        let mut state = self.state.clone();
        (state.certificates, state.world, state.certified_at) = (joined.certificates, joined.bootstrap, now());
        let tls = client_config_of_node(&state.world.node_ca, &state.certificates.node, state.key.expose())?;
        let pair = mesh::tls(&state)?;
        self.served.give(&state.certificates.server, state.key.expose())?;
        save(&state, &self.dir).await?;
        self.link.show(tls).await;
        self.ends_at.store(state.certificates.not_after, Relaxed);
        self.mesh.give(pair);
        self.state = state;
        info!("the certificates of this edge are new");
        Ok(())
    }
}

/// Resolves when something was wanted of the edge, and is not any more.
async fn forgotten(orders: &Orders, edge: EdgeId) {
    let mut changes = orders.subscribe();
    let mut was_known = orders.get(edge).is_some();
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        let is_known = orders.get(edge).is_some();
        if was_known && !is_known {
            return;
        }
        was_known = is_known;
    }
}

async fn save(state: &EdgeState, dir: &Path) -> anyhow::Result<()> {
    let (state, dir) = (state.clone(), dir.to_owned());
    tokio::task::spawn_blocking(move || state.write(&dir)).await?
}
