//! Sends questions to edges: to the edge of this process by a call, to edges on other machines over the bus.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Instant,
};

use sallyport_model::EdgeId;

use crate::{
    Fleet,
    asks::{Answer, Answered, Ask, AskResults, Responder},
    nats::Nats,
};

/// The most edges asked at a time.
const MAX_ASKED_AT_ONCE: usize = 1_024;

enum AskRoute {
    /// The edge is in this process.
    Here(Arc<dyn Responder>),
    /// Edges are on machines of their own.
    Bus(Box<(Nats, Fleet)>),
}

/// Sends questions to edges. Clones share the edges; before [`Asker::set_responder`] there is none.
#[derive(Clone, Default)]
pub struct Asker {
    way: Arc<OnceLock<AskRoute>>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker(..)")
    }
}

impl Asker {
    /// Asks this responder by a call.
    #[must_use]
    pub fn here(responder: Arc<dyn Responder>) -> Self {
        let asker = Self::default();
        asker.set_responder(responder);
        asker
    }

    /// Asks the edges of the fleet over the bus.
    #[must_use]
    pub fn over(nats: Nats, fleet: Fleet) -> Self {
        Self { way: Arc::new(OnceLock::from(AskRoute::Bus(Box::new((nats, fleet))))) }
    }

    /// Sets the responder of the edge in this process. Only the first call counts.
    pub fn set_responder(&self, responder: Arc<dyn Responder>) {
        let _ = self.way.set(AskRoute::Here(responder));
    }

    /// Asks every edge. Takes at most [`ASK_TIME`](crate::ASK_TIME).
    pub async fn ask_all(&self, ask: &Ask) -> AskResults {
        self.ask(None, |_| ask.clone(), |_| false).await
    }

    /// Asks only these edges. Takes at most [`ASK_TIME`](crate::ASK_TIME).
    pub async fn ask_these(&self, edges: &[EdgeId], ask: &Ask) -> AskResults {
        self.ask(Some(edges), |_| ask.clone(), |_| false).await
    }

    /// Asks every edge a question of its own; the edge of this process has no id.
    pub async fn ask_each(&self, ask: impl Fn(Option<EdgeId>) -> Ask) -> AskResults {
        self.ask(None, ask, |_| false).await
    }

    /// Asks every edge, and stops waiting once `is_it` accepts an answer.
    pub async fn ask_for(&self, ask: &Ask, is_it: impl Fn(&Answer) -> bool) -> AskResults {
        self.ask(None, |_| ask.clone(), is_it).await
    }

    async fn ask(
        &self,
        only: Option<&[EdgeId]>,
        ask: impl Fn(Option<EdgeId>) -> Ask,
        is_it: impl Fn(&Answer) -> bool,
    ) -> AskResults {
        let (nats, fleet) = match self.way.get() {
            None => return AskResults::default(),
            Some(AskRoute::Here(responder)) => {
                let began = Instant::now();
                let answer = responder.answer(ask(None));
                let answered = vec![Answered { edge: None, took: began.elapsed(), answer }];
                return AskResults { answered, silent: Vec::new() };
            }
            Some(AskRoute::Bus(bus)) => &**bus,
        };
        let edges = fleet.edges().into_iter().map(|seen| seen.card);
        let edges = edges.filter(|card| only.is_none_or(|only| only.contains(&card.edge))).take(MAX_ASKED_AT_ONCE);
        let asks = edges.map(|card| (ask(Some(card.edge)), card)).collect();
        let mut gathered = nats.gather(asks, is_it).await;
        gathered.silent.sort_by(|one, other| one.edge.name.cmp(&other.edge.name));
        gathered
    }
}
