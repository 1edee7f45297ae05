//! Sessions with other edges: the roles are turned around, so that the edge that was called is the connector. Nothing is
//! attached to such a session; streams are opened to whatever is attached at the other edge itself.

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

/// What a session with another edge has that those of connectors have not.
pub(super) struct LinkState {
    usable: Arc<AtomicBool>,
}

impl EdgeSession {
    /// The other edge takes no new streams any more.
    pub(super) fn leave_link(&self) {
        if let Some(link) = &self.link {
            link.usable.store(false, Ordering::Release);
        }
    }
}

/// A link to another edge, for as long as its session lasts. Clones share it.
#[derive(Clone)]
pub struct EdgeLink {
    session: Arc<EdgeSession>,
    usable: Arc<AtomicBool>,
    streams: Arc<Counter>,
    all_streams: Arc<Counter>,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other edge does not begin as it should.
    #[error("the other edge does not begin a session: {0}")]
    First(String),
    /// This edge cannot take it.
    #[error("{0}")]
    Refused(String),
}

impl EdgeLink {
    /// A tunnel that is attached at the other edge. It is of use for as long as this link is.
    #[must_use]
    pub fn tunnel(&self, tunnel: TunnelId, socket: SocketId, datagrams: bool) -> TunnelHandle {
        TunnelHandle {
            inner: Arc::new(HandleInner {
                tunnel,
                socket,
                datagrams,
                home: None,
                origin: None,
                session: self.session.clone(),
                usable: self.usable.clone(),
                request_log: Some(RequestLog::Own(Mutex::new(LogBudget::new(Instant::now())))),
                streams: self.streams.clone(),
                all_streams: self.all_streams.clone(),
            }),
        }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session.id
    }

    /// Whether new streams can be opened.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// As [`TunnelHandle::is_doubtful`], of the other edge.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.session.mux.is_doubtful()
    }

    /// The round trip to the other edge, once it was measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.session.mux.smoothed_rtt()
    }

    /// How many streams and flows run over it.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.streams.get() + self.session.flows().map_or(0, |leg| leg.stats().flows)
    }

    /// Whether flows of datagrams can be opened now.
    #[must_use]
    pub fn can_open_flow(&self) -> bool {
        self.is_usable() && self.session.flows().is_some()
    }

    /// Ends it once what is to be sent is sent, and with it what still runs over it.
    pub fn close(&self, why: &str) {
        self.session.leave_link();
        self.session.mux.close(why);
    }
}

impl EdgeTunnels {
    /// Makes a link of a connection that this edge has made to another one, which is the connector of the session from here
    /// on. `told` gets the link when the session is up, or why there is none. Returns when it is over, and why it is; give it
    /// a task of its own.
    pub async fn serve_link<S>(
        &self,
        mut io: S,
        peer: SocketAddr,
        config: SessionConfig,
        told: impl FnOnce(Result<EdgeLink, LinkError>) + Send,
    ) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let first = match tokio::time::timeout(FIRST_FRAME_TIME, read_first_frame(&mut io)).await {
            Ok(Ok(FirstFrame::Control { hello, frame })) => Ok((hello, frame)),
            Ok(Ok(_)) => Err("it says something else than HELLO".to_owned()),
            Ok(Err(FirstFrameError::Hello(violation))) => Err(violation.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it says nothing".to_owned()),
        };
        let (hello, frame) = match first {
            Ok(first) => first,
            Err(why) => {
                told(Err(LinkError::First(why.clone())));
                return why;
            }
        };
        let (usable, streams) = (Arc::new(AtomicBool::new(true)), Arc::<Counter>::default());
        let state = LinkState { usable: usable.clone() };
        let session = match self.shared.new_session(peer, &hello, &frame, SessionPeer::Edge(state, config)) {
            Ok(session) => session,
            Err(unmade) => {
                let why = unmade.to_string();
                told(Err(match unmade {
                    SessionError::Hello(_) => LinkError::First(why.clone()),
                    SessionError::Random => LinkError::Refused(why.clone()),
                }));
                return why;
            }
        };
        if let Some(refusal) = self.shared.add_session(&session) {
            told(Err(LinkError::Refused(refusal.to_string())));
            return refusal.to_string();
        }
        let all_streams = self.shared.streams.clone();
        told(Ok(EdgeLink { session: session.clone(), usable, streams, all_streams }));
        self.drive_session(io, &session, None).await
    }
}

impl std::fmt::Debug for EdgeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeLink").field("session", &self.session()).finish_non_exhaustive()
    }
}
