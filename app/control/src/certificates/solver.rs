//! Answers challenges: stores each one, and waits until every edge has it.

use std::time::Duration;

use sallyport_acme::{BoxFuture, Challenge, Solver};
use sallyport_bus::{Answer, Ask};
use sallyport_model::{AcmeChallenge, ChallengeId, ChallengeKind};
use sallyport_store::{CertificateLease, PendingOrder};

use crate::{problem::ApiError, security::random, state::App};

/// How long edges answer a challenge, in seconds.
const CHALLENGE_SECONDS: i64 = 600;
/// How long control waits for edges that do not have a challenge yet.
const MAX_WAIT_FOR_EDGES: Duration = Duration::from_secs(10);
/// How often control asks the edges.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The solver of one order.
pub(super) struct OrderSolver {
    pub(super) app: App,
    pub(super) lease: CertificateLease,
    /// The order in progress, without its address.
    pub(super) order: PendingOrder,
}

fn kind(kind: sallyport_acme::ChallengeKind) -> ChallengeKind {
    match kind {
        sallyport_acme::ChallengeKind::Http01 => ChallengeKind::Http01,
        sallyport_acme::ChallengeKind::TlsAlpn01 => ChallengeKind::TlsAlpn01,
        sallyport_acme::ChallengeKind::Dns01 => ChallengeKind::Dns01,
    }
}

fn sentence(error: impl Into<ApiError>) -> String {
    let error: ApiError = error.into();
    error.inner().unwrap_or(error.sentence()).to_owned()
}

impl OrderSolver {
    async fn show(&self, challenge: &Challenge) -> Result<(), String> {
        let app = &self.app;
        let id = ChallengeId::from_random(random::bytes().map_err(sentence)?);
        let shown = AcmeChallenge {
            id,
            name: challenge.name.clone(),
            kind: kind(challenge.kind),
            token: challenge.token.clone(),
            key_authorization: challenge.key_authorization.clone(),
        };
        let now = app.clock.now().unix_seconds;
        app.store.put_challenge(&shown, now, now + CHALLENGE_SECONDS).await.map_err(sentence)?;
        app.challenges.put(shown);
        let waited = tokio::time::timeout(MAX_WAIT_FOR_EDGES, app.wait_for_edges(id)).await;
        if waited.is_err() {
            tracing::warn!(name = challenge.name, "not every edge has a challenge in time: the order goes on");
        }
        Ok(())
    }

    async fn hide(&self, challenge: &Challenge) {
        let app = &self.app;
        let is_it = |one: &AcmeChallenge| one.token == challenge.token && one.name == challenge.name;
        for one in app.challenges.all().iter().filter(|one| is_it(one)) {
            if let Err(error) = app.store.delete_challenge(one.id).await {
                tracing::debug!(%error, "a challenge ends by itself");
            }
            app.challenges.remove(one.id);
        }
    }
}

impl Solver for OrderSolver {
    fn present<'a>(&'a self, challenge: &'a Challenge) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.show(challenge))
    }

    fn remove<'a>(&'a self, challenge: &'a Challenge) -> BoxFuture<'a, ()> {
        Box::pin(self.hide(challenge))
    }

    fn order_created<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let order = PendingOrder { url: Some(url.to_owned()), ..self.order.clone() };
            match self.app.store.set_certificate_order(self.lease, Some(&order)).await {
                Ok(true) => Ok(()),
                Ok(false) => Err("another control works at this certificate".to_owned()),
                Err(error) => Err(sentence(error)),
            }
        })
    }
}

impl App {
    /// Waits until every edge that answers has the challenge.
    async fn wait_for_edges(&self, id: ChallengeId) {
        if self.edges.get().is_none() {
            return;
        }
        loop {
            let answered = self.config.asker.ask_all(&Ask::HasChallenge { challenge: id }).await.answered;
            let lacks = |answer: &Answer| *answer == Answer::HasChallenge(false);
            if !answered.iter().any(|answered| lacks(&answered.answer)) {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}
