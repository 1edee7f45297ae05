//! Contact between edges about steering: whether another edge answers, and its report for the controls.
//!
//! A connection that is accepted says little: the system accepts it for a process that hangs. So an edge asks over a
//! link, and the other process answers. Question and answer may have a report of load with its code. An edge that hears
//! a leader sends reports of others on to it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sallyport_bus::EdgeCard;
use sallyport_model::{EdgeId, SocketId, TunnelId};
use sallyport_tunnel::{EdgeLink, IncomingStream};
use sallyport_wire::{Open, StreamProtocol};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};

use super::{Mesh, links::connect_tcp};

/// The tunnel of a stream that is a question about steering. No tunnel of a socket has it.
pub(super) const STEERING_TUNNEL: TunnelId = TunnelId::from_bytes([0; 16]);
/// How long an edge may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How many edges are asked at once.
const MAX_ASKED_AT_ONCE: usize = 64;
/// The largest report, in bytes.
const MAX_REPORT_BYTES: u64 = 1024 * 1024;

impl Mesh {
    /// Which of these edges answer now.
    pub(crate) async fn reach(self: &Arc<Self>, edges: &[Arc<EdgeCard>]) -> Vec<EdgeId> {
        let mut asked = JoinSet::new();
        let mut reached = Vec::new();
        for card in edges {
            while asked.len() >= MAX_ASKED_AT_ONCE {
                reached.extend(asked.join_next().await.and_then(Result::ok).flatten());
            }
            let (mesh, card) = (self.clone(), card.clone());
            asked.spawn(async move { mesh.is_reached(&card).await.then_some(card.edge) });
        }
        while let Some(done) = asked.join_next().await {
            reached.extend(done.ok().flatten());
        }
        reached
    }

    async fn is_reached(&self, card: &Arc<EdgeCard>) -> bool {
        let peer = self.peer(card);
        let link = match peer.link() {
            Some(link) => link,
            // Most edges that do not answer are away: that shows without a link.
            None if connect_tcp(&card.addresses).await.is_err() => return false,
            None => match self.link_to(&peer).await {
                Ok(link) => link,
                Err(_) => return false,
            },
        };
        let report = self.settings.steering.report_to_pass();
        let asked = tokio::time::timeout(ANSWER_TIME, ask(&link, report.as_deref().unwrap_or_default())).await;
        let Some(answer) = asked.ok().flatten() else { return false };
        self.settings.steering.relay(card.edge, answer);
        true
    }
}

/// Asks over a link, and returns the report in the answer, if any. `None`: no answer.
async fn ask(link: &EdgeLink, report: &[u8]) -> Option<Vec<u8>> {
    let open = Open {
        tunnel: STEERING_TUNNEL,
        protocol: StreamProtocol::Raw,
        client: SocketAddr::from(([0; 4], 0)),
        destination: None,
        opened_at_us: 0,
        server_name: String::new(),
    };
    let mut stream = link.tunnel(STEERING_TUNNEL, SocketId::from_bytes([0; 16]), false).open_shared(open).ok()?;
    let establishment = stream.establishment();
    let exchanged = async {
        stream.write_all(report).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        (&mut stream).take(MAX_REPORT_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match exchanged.await {
        Ok(answer) => Some(answer),
        // An edge of an earlier version refuses the stream, and so answers.
        Err(_) if establishment.peek().is_some_and(|answer| answer.is_err()) && !establishment.is_lost() => {
            Some(Vec::new())
        }
        Err(_) => None,
    }
}

/// Answers a question of another edge.
pub(super) async fn answer(mesh: Arc<Mesh>, from: EdgeId, incoming: IncomingStream) {
    let exchanged = async {
        let mut stream = incoming.opened().await?;
        let mut report = Vec::new();
        (&mut stream).take(MAX_REPORT_BYTES).read_to_end(&mut report).await?;
        mesh.settings.steering.relay(from, report);
        if let Some(own) = mesh.settings.steering.report_to_pass() {
            stream.write_all(&own).await?;
        }
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(ANSWER_TIME, exchanged).await {
        tracing::debug!(edge = %from, %error, "a question of another edge could not be answered");
    }
}
