//! How an edge gets its certificates: first with a join token, then with its certificates.

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
use sallyport_bus::{Nats, Orders, SteeringKey};
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

/// From which difference of the clocks on to warn.
const MAX_SKEW_SECONDS: u64 = 60;
/// The problem code of control after the removal of this edge.
const REMOVED: &str = "edge-removed";
/// How soon a failed renewal is tried again.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// How often control is asked for changes, and the time of the renewal is checked: clocks may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Joins with the token of the command line.
///
/// # Errors
/// Why the join failed, in a sentence.
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
    let request_body = JoinEdge { secret: token.secret, name: args.name.clone(), region: args.region.clone(), request };
    let joined: JoinedEdge = link.ask("/node/v1/join", &request_body).await.map_err(|error| refused(&error))?;
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
            .next("check that control runs and is reachable at the address in the token"),
    }
}

fn warn_of_skew(theirs: i64) {
    let ours = now();
    if ours.abs_diff(theirs) > MAX_SKEW_SECONDS {
        let (seconds, direction) = (ours.abs_diff(theirs), if ours > theirs { "ahead of" } else { "behind" });
        warn!(seconds, "the clock of this machine is {direction} control's: set one of them right");
    }
}

/// The link to control for an edge with certificates.
///
/// # Errors
/// The certificates cannot be used.
pub(super) fn link(state: &EdgeState) -> anyhow::Result<ControlLink> {
    let tls = client_config_of_node(&state.bootstrap.node_ca, &state.certificates.node, state.key.expose())?;
    // Shuffled, so that edges spread over the controls.
    let mut controls = state.bootstrap.controls.clone();
    if !controls.is_empty() {
        let first = usize::from(state.id.as_bytes()[15]) % controls.len();
        controls.rotate_left(first);
    }
    Ok(ControlLink::new(controls, tls))
}

/// The time of control's clock at its last response, and when that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ControlClock {
    shown: i64,
    at: Instant,
}

impl ControlClock {
    pub(super) fn new(shown: i64) -> Self {
        Self { shown, at: Instant::now() }
    }

    /// When control's clock shows this time, in seconds since 1970. Times too far in the past become the time of the
    /// response.
    pub(super) fn moment(self, seconds: i64) -> Instant {
        let left = Duration::from_secs(seconds.abs_diff(self.shown));
        let moment = if seconds < self.shown { self.at.checked_sub(left) } else { self.at.checked_add(left) };
        moment.unwrap_or(self.at)
    }
}

/// Renews the certificates of an edge.
pub(super) struct Renewal {
    pub(super) dir: PathBuf,
    pub(super) state: EdgeState,
    pub(super) link: ControlLink,
    pub(super) nats: Nats,
    pub(super) served: Arc<Certificates>,
    /// Whether the difference of the clocks was logged.
    pub(super) skew_logged: bool,
    /// The end of the certificates, in seconds since 1970, for other parts.
    pub(super) ends_at: Arc<AtomicI64>,
    pub(super) mesh: MeshTls,
    /// Control's orders. When the order to this edge disappears, control is asked whether the edge was removed.
    pub(super) orders: Orders,
    /// Whether control has reported the removal of this edge.
    pub(super) removed: watch::Sender<bool>,
    /// Control's clock.
    pub(super) clock: watch::Sender<Option<ControlClock>>,
    /// Name and icon of the installation's pages.
    pub(super) site: watch::Sender<Arc<Site>>,
    /// The edge's key for messages about steering.
    pub(super) steering_key: watch::Sender<Option<SteeringKey>>,
}

impl Renewal {
    /// Renews at once, to learn control's configuration, and then after two thirds of the certificates' life. Runs
    /// until dropped.
    pub(super) async fn run(mut self) {
        let mut is_first = true;
        loop {
            let EdgeCertificates { not_after, .. } = self.state.certificates;
            let due = self.state.certified_at + (not_after - self.state.certified_at) * 2 / 3;
            if !is_first && now() < due && now() >= self.state.certified_at {
                let left = u64::try_from(due - now()).unwrap_or(0);
                let pause = LOOK_EVERY.min(Duration::from_secs(left.max(1)));
                // Whichever comes first.
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
                    // The known configuration suffices until the renewal is due.
                    is_first &= now() < due;
                }
            }
        }
    }

    /// Reads the controls and the rest of the configuration.
    async fn look(&mut self) -> anyhow::Result<()> {
        let response = self.link.ask("/node/v1/world", &BootstrapRequest::default()).await;
        let BootstrapResponse { bootstrap, now } = self.noting_removal(response)?;
        self.warn_of_skew(now);
        if bootstrap.ca != self.state.bootstrap.ca {
            // The certificate for clients is of the former root.
            info!("the installation has another root: certificates are requested");
            return self.renew().await;
        }
        if bootstrap != self.state.bootstrap {
            self.apply(&bootstrap);
            let mut state = self.state.clone();
            state.bootstrap = bootstrap;
            save(&state, &self.dir).await?;
            self.state = state;
        }
        Ok(())
    }

    /// Notes the removal of this edge if the response reports it.
    fn noting_removal<T>(&self, answer: Result<T, LinkError>) -> Result<T, LinkError> {
        let is_removed = match &answer {
            Ok(_) => false,
            Err(LinkError::Refused(problem)) if problem.code == REMOVED => true,
            Err(_) => return answer,
        };
        if self.removed.send_if_modified(|was| std::mem::replace(was, is_removed) != is_removed) {
            if is_removed {
                warn!(
                    "this edge was removed from the installation: its connectors and clients are sent elsewhere; stop \
                     it, or have it join again with a new token, in an empty data directory"
                );
            } else {
                info!("this edge is of the installation again");
            }
        }
        answer
    }

    /// Applies control's configuration.
    fn apply(&self, bootstrap: &EdgeBootstrap) {
        self.link.know(&bootstrap.controls);
        self.site.send_replace(Arc::new(site_of(bootstrap)));
        self.steering_key.send_replace(state::steering_key(bootstrap));
        self.served.require_public(bootstrap.has_public_names);
        let of_bus = |bootstrap: &EdgeBootstrap| {
            let EdgeBootstrap { bus, bus_user, bus_password, bus_token, bus_ca, .. } = bootstrap.clone();
            (bus, bus_user, bus_password, bus_token, bus_ca)
        };
        if of_bus(bootstrap) != of_bus(&self.state.bootstrap) {
            self.nats.use_credentials(state::bus_credentials(bootstrap));
            info!(
                "control names the bus otherwise: other credentials hold from the next connection on, another place \
                 from the next start"
            );
        }
    }

    /// Stores control's clock, and logs once while the clocks differ.
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
        (state.certificates, state.bootstrap, state.certified_at) = (joined.certificates, joined.bootstrap, now());
        let tls = client_config_of_node(&state.bootstrap.node_ca, &state.certificates.node, state.key.expose())?;
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

/// Resolves when the order to this edge has disappeared.
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
