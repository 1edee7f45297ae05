//! How an edge comes to its certificates: by a token once, and by its certificates from then on.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sallyport_api::{EdgeCertificates, JoinEdge, JoinToken, JoinedEdge, RenewEdge};
use sallyport_net::{Certificates, Trust, client_config, client_config_of_node};
use sallyport_pki::{KeyPair, PKCS_ECDSA_P256_SHA256, certificate_request};
use tracing::{info, warn};

use super::{
    args::EdgeArgs,
    control_link::{ControlLink, LinkError},
    state::EdgeState,
};
use crate::failure::{Failure, Kind};

/// How far this machine's clock may be from control's before that is said.
const MAX_SKEW_SECONDS: u64 = 60;
/// How often new certificates are asked for that could not be had.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// How often it is looked whether the time has come: clocks may be put right meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(600);

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
    tell_skew(joined.now);
    info!(edge = %joined.name, region = %joined.region, domain = joined.world.domain, "joined");
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

fn tell_skew(theirs: i64) {
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
    Ok(ControlLink::new(state.world.controls.clone(), tls))
}

/// Keeps the certificates of an edge from ending.
pub(super) struct Renewal {
    pub(super) dir: PathBuf,
    pub(super) state: EdgeState,
    pub(super) link: ControlLink,
    pub(super) served: Arc<Certificates>,
}

impl Renewal {
    /// Renews at once, so that what else control tells is known, and whenever two thirds of the certificates' life are over.
    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let mut is_first = true;
        loop {
            let EdgeCertificates { not_after, .. } = self.state.certificates;
            let due = self.state.certified_at + (not_after - self.state.certified_at) * 2 / 3;
            if !is_first && now() < due && now() >= self.state.certified_at {
                let left = u64::try_from(due - now()).unwrap_or(0);
                tokio::time::sleep(LOOK_EVERY.min(Duration::from_secs(left.max(1)))).await;
                continue;
            }
            match self.renew().await {
                Ok(()) => is_first = false,
                Err(error) => {
                    let ended = now() >= not_after;
                    warn!(
                        error = format!("{error:#}"),
                        ended, "the certificates of this edge are not renewed: trying again"
                    );
                    tokio::time::sleep(RENEW_AGAIN).await;
                    // What is known is good enough until it is due.
                    is_first &= now() < due;
                }
            }
        }
    }

    async fn renew(&mut self) -> anyhow::Result<()> {
        let key = KeyPair::from_pem(self.state.key.expose())?;
        let request = RenewEdge { request: certificate_request(&key)? };
        let joined: JoinedEdge = self.link.ask("/node/v1/renew", &request).await?;
        tell_skew(joined.now);
        let mut state = self.state.clone();
        (state.certificates, state.world, state.certified_at) = (joined.certificates, joined.world, now());
        let tls = client_config_of_node(&state.world.node_ca, &state.certificates.node, state.key.expose())?;
        self.served.give(&state.certificates.server, state.key.expose())?;
        save(&state, &self.dir).await?;
        self.link.show(tls).await;
        self.state = state;
        info!("the certificates of this edge are new");
        Ok(())
    }
}

async fn save(state: &EdgeState, dir: &Path) -> anyhow::Result<()> {
    let (state, dir) = (state.clone(), dir.to_owned());
    tokio::task::spawn_blocking(move || state.write(&dir)).await?
}
