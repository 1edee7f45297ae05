//! The outcome of a flow in metrics and records.

/// The outcome of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both directions ended in order.
    Complete,
    /// The access list or the policies refused it.
    Denied,
    /// A limit of the socket was reached.
    Limited,
    /// Tunnels are up, but all their origins are unhealthy.
    NoHealthyOrigin,
    /// Every origin has as many flows as it can carry.
    OverCapacity,
    /// The client aborted it.
    ClientLeft,
    /// The origin or its tunnel aborted it.
    Broken,
    /// No tunnel of the socket is up.
    NoTunnel,
    /// No origin accepted the connection.
    OriginRefused,
    /// No origin accepted the connection in time.
    OriginTimedOut,
    /// No answer came from the origin (UDP).
    Unanswered,
    /// It was evicted for a newer flow (UDP).
    Evicted,
    /// The number of flows has reached its bound (UDP).
    TooManyFlows,
    /// Its client is no longer admitted.
    Revoked,
    /// It was ended through the API.
    Killed,
    /// The edge was shut down.
    CutOff,
}

impl Verdict {
    /// All verdicts, in order.
    pub(crate) const ALL: [Self; 16] = [
        Self::Complete,
        Self::Denied,
        Self::Limited,
        Self::NoHealthyOrigin,
        Self::OverCapacity,
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

    /// The name in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::NoHealthyOrigin => "no-healthy-origin",
            Self::OverCapacity => "over-capacity",
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
