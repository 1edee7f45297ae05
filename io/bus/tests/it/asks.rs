//! Requests of control to edges, over a real NATS server.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use sallyport_bus::{ASK_TIME, Answer, Ask, Asker, LiveFlow, LiveFlows, Nats, NoAnswerReason, Responder, answer_asks};
use sallyport_model::{AccountId, EdgeId, SocketId, SocketType};

use crate::{
    directory::{control, edge},
    nats::{Nats as Server, until},
};

/// A responder that takes longer than the requests' timeout.
struct Asleep;

impl Responder for Asleep {
    fn answer(&self, _ask: Ask) -> Answer {
        std::thread::sleep(ASK_TIME * 2);
        Answer::Killed(None)
    }
}

fn flows(ids: &[&str]) -> (LiveFlows, Vec<sallyport_bus::FlowGuard>) {
    let flows = LiveFlows::default();
    let begin = |id: &&str| {
        let of = (ours(), SocketId::from_random([1; 16]), "calm-bay-1000".parse().unwrap(), SocketType::Tcp);
        flows.begin(LiveFlow::new((*id).to_owned(), of, "192.0.2.1:1".parse().unwrap(), SystemTime::now()))
    };
    let stays = ids.iter().map(begin).collect();
    (flows, stays)
}

fn ours() -> AccountId {
    AccountId::from_random([1; 16])
}

async fn answering(server: &Server, number: u8, responder: Arc<dyn Responder>) -> tokio::task::JoinHandle<()> {
    let nats = Nats::connect(&server.config()).await.unwrap();
    tokio::spawn(answer_asks(nats, EdgeId::from_random([number; 16]), responder))
}

/// The flows of all edges, and the edges without an answer.
async fn listed(asker: &Asker) -> (Vec<String>, Vec<(String, NoAnswerReason)>) {
    let gathered = asker.ask_all(&Ask::Flows { organisation: ours(), after: String::new(), limit: 100 }).await;
    let mut ids = Vec::new();
    for answered in gathered.answered {
        let Answer::Flows(list) = answered.answer else { panic!("{answered:?}") };
        let edge = answered.edge.unwrap().name.clone();
        ids.extend(list.flows.into_iter().map(|flow| format!("{edge} {}", flow.id)));
    }
    ids.sort();
    (ids, gathered.silent.into_iter().map(|one| (one.edge.name.to_string(), one.why)).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_edges_are_asked_and_those_that_are_silent_named() {
    let Some(mut server) = Server::start("") else { return };
    let (_all, fleet) = control(&server).await;
    let nats = Nats::connect(&server.config()).await.unwrap();
    let asker = Asker::over(nats.clone(), fleet.clone());
    assert!(listed(&asker).await.0.is_empty(), "no edges, nothing to wait for");
    let _edges = (edge(&server, 1, 1).await, edge(&server, 2, 1).await, edge(&server, 3, 1).await);
    until("all edges are known", || fleet.edges().len() == 3).await;
    let ((one, _kept), (two, stays)) = (flows(&["a", "c"]), flows(&["b"]));
    let _answering = (answering(&server, 1, Arc::new(one)).await, answering(&server, 2, Arc::new(two.clone())).await);
    // The third edge does not listen.
    let expected = vec!["edge-1 a".to_owned(), "edge-1 c".to_owned(), "edge-2 b".to_owned()];
    let end = Instant::now() + crate::nats::PATIENCE;
    loop {
        let (ids, silent) = listed(&asker).await;
        if ids == expected {
            assert_eq!(silent, [("edge-3".to_owned(), NoAnswerReason::NobodyThere)]);
            break;
        }
        assert!(Instant::now() < end, "{ids:?} {silent:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Now the third edge listens but does not answer in time: the request waits for the timeout and no longer.
    let _asleep = answering(&server, 3, Arc::new(Asleep)).await;
    let end = Instant::now() + crate::nats::PATIENCE;
    loop {
        let began = Instant::now();
        let (ids, silent) = listed(&asker).await;
        if silent == [("edge-3".to_owned(), NoAnswerReason::TimedOut)] && ids == expected {
            assert!(began.elapsed() >= ASK_TIME);
            break;
        }
        assert!(Instant::now() < end, "{ids:?} {silent:?}");
    }
    // One edge with the flow is enough.
    let kill = |organisation, flow: &str| Ask::KillFlow { organisation, flow: flow.to_owned() };
    let killed = |answer: &Answer| matches!(answer, Answer::Killed(Some(_)));
    let theirs = asker.ask_for(&kill(AccountId::from_random([2; 16]), "b"), killed).await;
    assert!(!theirs.answered.iter().any(|one| killed(&one.answer)) && !stays[0].flow().is_cut());
    let gathered = asker.ask_for(&kill(ours(), "b"), killed).await;
    let by = gathered.answered.iter().find(|one| killed(&one.answer)).and_then(|one| one.edge.clone());
    assert_eq!(by.map(|card| card.name.to_string()).as_deref(), Some("edge-2"));
    assert!(stays[0].flow().is_cut());
    // The NATS server stops: all edges count as silent at once, and the requests do not arrive later.
    server.kill();
    until("the loss is seen", || !nats.link().is_up).await;
    let began = Instant::now();
    let (ids, silent) = listed(&asker).await;
    assert!(
        ids.is_empty() && silent.len() == 3 && silent.iter().all(|(_, why)| *why == NoAnswerReason::BusAway),
        "{silent:?}"
    );
    assert!(began.elapsed() < ASK_TIME, "there was no wait");
    server.resume();
    let end = Instant::now() + crate::nats::PATIENCE;
    while listed(&asker).await.0 != ["edge-1 a", "edge-1 c", "edge-2 b"] {
        assert!(Instant::now() < end, "edges answer when the bus is back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn on_one_machine_the_same_is_a_call() {
    let (here, _stays) = flows(&["a"]);
    let asker = Asker::default();
    let ask = Ask::Flows { organisation: ours(), after: String::new(), limit: 10 };
    assert!(asker.ask_all(&ask).await.answered.is_empty(), "no edge yet");
    asker.set_responder(Arc::new(here));
    let gathered = asker.ask_all(&ask).await;
    assert!(gathered.silent.is_empty() && gathered.answered[0].edge.is_none());
    assert!(matches!(&gathered.answered[0].answer, Answer::Flows(list) if list.flows[0].id == "a"));
}
