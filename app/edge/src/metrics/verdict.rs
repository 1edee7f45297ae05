//! How a flow ended, as metrics and records say it.

/// How a flow ended, and who ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both directions ended in good order.
    Complete,
    /// The client's address is not let in, or its policies do not let in who it is.
    Denied,
    /// The socket has used what it may.
    Limited,
    /// Tunnels are up, and none of their origins takes anything.
    NoHealthyOrigin,
    /// The client broke off.
    ClientLeft,
    /// The origin or its tunnel broke off.
    Broken,
    /// No tunnel of the socket is up.
    NoTunnel,
    /// No origin took the connection.
    OriginRefused,
    /// No origin took the connection in time.
    OriginTimedOut,
    /// Nothing came back from the origin (UDP).
    Unanswered,
    /// It made way for newer flows (UDP).
    Evicted,
    /// There were as many flows as there may be (UDP).
    TooManyFlows,
    /// Who it belongs to may not come in any more.
    Revoked,
    /// Somebody with the right to do so cut it.
    Killed,
    /// The edge was shut down.
    CutOff,
}

impl Verdict {
    /// Every verdict, in their order.
    pub(crate) const ALL: [Self; 15] = [
        Self::Complete,
        Self::Denied,
        Self::Limited,
        Self::NoHealthyOrigin,
        Self::ClientLeft,
        Self::Broken,
        Self::NoTunnel,
        Self::OriginRefused,
        Self::OriginTimedOut,
        Self::Unanswered,
        Self::Evicted,
        Self::TooManyFlows,
        Self::Revoked,
        Self::Killed,
        Self::CutOff,
    ];

    /// The verdict as it stands in the log and in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::NoHealthyOrigin => "no-healthy-origin",
            Self::ClientLeft => "client-left",
            Self::Broken => "broken",
            Self::NoTunnel => "no-tunnel",
            Self::OriginRefused => "origin-refused",
            Self::OriginTimedOut => "origin-timed-out",
            Self::Unanswered => "unanswered",
            Self::Evicted => "evicted",
            Self::TooManyFlows => "too-many-flows",
            Self::Revoked => "revoked",
            Self::Killed => "killed",
            Self::CutOff => "cut-off",
        }
    }
}
