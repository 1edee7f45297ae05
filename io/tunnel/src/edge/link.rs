//! Sessions between two edges, with the roles reversed: the edge that was called acts as the connector.
//!
//! Nothing is attached to such a session; streams are opened to the tunnels attached at the other edge.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_model::{SocketId, TunnelId};
use sallyport_wire::{LogBudget, SessionConfig};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    EdgeSession, EdgeTunnels, FIRST_FRAME_TIME, SessionError, SessionPeer,
    first_frame::{FirstFrame, FirstFrameError, read_first_frame},
    handle::{HandleInner, RequestLog, TunnelHandle},
};
use crate::{SessionId, count::Counter};

/// State of a session with another edge.
pub(super) struct LinkState {
    usable: Arc<AtomicBool>,
}

impl EdgeSession {
    /// Marks the link as unusable: the other edge accepts no new streams.
    pub(super) fn leave_link(&self) {
        if let Some(link) = &self.link {
            link.usable.store(false, Ordering::Release);
        }
    }
}

/// A link to another edge, valid while its session lasts. Clones share the link.
#[derive(Clone)]
pub struct EdgeLink {
    session: Arc<EdgeSession>,
    usable: Arc<AtomicBool>,
    streams: Arc<Counter>,
    all_streams: Arc<Counter>,
}

/// Why a link could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other edge does not start a session correctly.
    #[error("the other edge does not start a session: {0}")]
    First(String),
    /// This edge cannot accept the session.
    #[error("{0}")]
    Refused(String),
}

impl EdgeLink {
    /// A handle of a tunnel attached at the other edge, usable while this link is.
    #[must_use]
    pub fn tunnel(&self, tunnel: TunnelId, socket: SocketId, datagrams: bool) -> TunnelHandle {
        TunnelHandle {
            inner: Arc::new(HandleInner {
                tunnel,
                socket,
                datagrams,
                home: None,
                origin: None,
                spread: false,
                session: self.session.clone(),
                usable: self.usable.clone(),
                request_log: Some(RequestLog::Own(Mutex::new(LogBudget::new(Instant::now())))),
                streams: self.streams.clone(),
                all_streams: self.all_streams.clone(),
            }),
        }
    }

    /// The session of the link.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session.id
    }

    /// Whether new streams can be opened.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// Like [`TunnelHandle::is_unresponsive`], for the other edge.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.session.mux.is_unresponsive()
    }

    /// The round-trip time to the other edge, once measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.session.mux.smoothed_rtt()
    }

    /// Number of streams and flows on the link.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.streams.get() + self.session.flows().map_or(0, |leg| leg.stats().flows)
    }

    /// Whether flows of datagrams can be opened now.
    #[must_use]
    pub fn can_open_flow(&self) -> bool {
        self.is_usable() && self.session.flows().is_some()
    }

    /// Closes the link after queued frames were sent. Running streams end with the link.
    pub fn close(&self, why: &str) {
        self.session.leave_link();
        self.session.mux.close(why);
    }
}

impl EdgeTunnels {
    /// Runs a link on a connection that this edge has made to another edge, which acts as the connector. `result` gets
    /// the link once the session is established, or the error. Returns the reason when the link ends; run it in a task
    /// of its own.
    pub async fn serve_link<S>(
        &self,
        mut io: S,
        peer: SocketAddr,
        config: SessionConfig,
        result: impl FnOnce(Result<EdgeLink, LinkError>) + Send,
    ) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let first = match tokio::time::timeout(FIRST_FRAME_TIME, read_first_frame(&mut io)).await {
            Ok(Ok(FirstFrame::Control { hello, frame })) => Ok((hello, frame)),
            Ok(Ok(_)) => Err("its first frame is not HELLO".to_owned()),
            Ok(Err(FirstFrameError::Hello(violation))) => Err(violation.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it sends nothing".to_owned()),
        };
        let (hello, frame) = match first {
            Ok(first) => first,
            Err(why) => {
                result(Err(LinkError::First(why.clone())));
                return why;
            }
        };
        let (usable, streams) = (Arc::new(AtomicBool::new(true)), Arc::<Counter>::default());
        let state = LinkState { usable: usable.clone() };
        let session = match self.shared.new_session(peer, &hello, &frame, SessionPeer::Edge(state, config)) {
            Ok(session) => session,
            Err(unmade) => {
                let why = unmade.to_string();
                result(Err(match unmade {
                    SessionError::Hello(_) => LinkError::First(why.clone()),
                    SessionError::Random => LinkError::Refused(why.clone()),
                }));
                return why;
            }
        };
        if let Some(refusal) = self.shared.add_session(&session) {
            result(Err(LinkError::Refused(refusal.to_string())));
            return refusal.to_string();
        }
        let all_streams = self.shared.streams.clone();
        result(Ok(EdgeLink { session: session.clone(), usable, streams, all_streams }));
        self.drive_session(io, &session, None).await
    }
}

impl std::fmt::Debug for EdgeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeLink").field("session", &self.session()).finish_non_exhaustive()
    }
}
