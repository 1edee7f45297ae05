//! What became of a message, for metrics.

use std::fmt;

use crate::{data::Steered, query::NoQuery, transfer::Transfer};

/// The code of an answer (RFC 6895 section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rcode(pub u16);

impl Rcode {
    /// No error.
    pub const NO_ERROR: Self = Self(0);
    /// The query is malformed.
    pub const FORM_ERR: Self = Self(1);
    /// The server failed.
    pub const SERV_FAIL: Self = Self(2);
    /// There is no such name.
    pub const NX_DOMAIN: Self = Self(3);
    /// The kind of query is not implemented.
    pub const NOT_IMP: Self = Self(4);
    /// The server does not answer this.
    pub const REFUSED: Self = Self(5);
    /// A redirected name is too long.
    pub const YX_DOMAIN: Self = Self(6);
    /// Not a zone of this server, or a bad signature.
    pub const NOT_AUTH: Self = Self(9);
    /// The version of EDNS is not implemented.
    pub const BAD_VERS: Self = Self(16);
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NO_ERROR => "NOERROR",
            Self::FORM_ERR => "FORMERR",
            Self::SERV_FAIL => "SERVFAIL",
            Self::NX_DOMAIN => "NXDOMAIN",
            Self::NOT_IMP => "NOTIMP",
            Self::REFUSED => "REFUSED",
            Self::YX_DOMAIN => "YXDOMAIN",
            Self::NOT_AUTH => "NOTAUTH",
            Self::BAD_VERS => "BADVERS",
            Self(number) => return write!(f, "RCODE{number}"),
        };
        f.write_str(name)
    }
}

/// Kinds of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// Records.
    Records,
    /// The name has no such records.
    NoData,
    /// There is no such name.
    NoName,
    /// A delegation.
    Referral,
    /// About the server itself (class CH).
    Server,
    /// A transfer of a zone.
    Transfer,
    /// Not a zone of this server, or not for this client.
    Refused,
    /// The query is malformed.
    Malformed,
    /// The kind of query is not implemented.
    NotImplemented,
    /// The version of EDNS is not implemented.
    BadVersion,
    /// The server does not know yet: addresses of another name, for example.
    Failed,
    /// Past the rate of its network.
    Limited,
}

impl AnswerKind {
    /// All kinds, in the order of [`AnswerKind::index`].
    pub const ALL: [Self; 12] = [
        Self::Records,
        Self::NoData,
        Self::NoName,
        Self::Referral,
        Self::Server,
        Self::Transfer,
        Self::Refused,
        Self::Malformed,
        Self::NotImplemented,
        Self::BadVersion,
        Self::Failed,
        Self::Limited,
    ];

    /// The place of the kind among all, for arrays of counters.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The label of the kind in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::NoData => "nodata",
            Self::NoName => "nxdomain",
            Self::Referral => "referral",
            Self::Server => "server",
            Self::Transfer => "transfer",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::NotImplemented => "notimp",
            Self::BadVersion => "badvers",
            Self::Failed => "failed",
            Self::Limited => "limited",
        }
    }
}

/// Why a message gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It has no header.
    TooShort,
    /// It is an answer.
    Response,
    /// Past the rate of its network.
    RateLimited,
}

impl DropReason {
    /// All reasons, in the order of [`DropReason::index`].
    pub const ALL: [Self; 3] = [Self::TooShort, Self::Response, Self::RateLimited];

    /// The place of the reason among all, for arrays of counters.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The label of the reason in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::TooShort => "too-short",
            Self::Response => "response",
            Self::RateLimited => "rate-limited",
        }
    }
}

impl From<NoQuery> for DropReason {
    fn from(reason: NoQuery) -> Self {
        match reason {
            NoQuery::TooShort => Self::TooShort,
            NoQuery::Response => Self::Response,
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Verdict {
    /// Send the answer.
    Send,
    /// Send nothing.
    Drop(DropReason),
    /// Send the messages of this transfer over the same connection.
    Transfer(Box<Transfer>),
}

/// What became of a message.
#[derive(Debug)]
pub struct Outcome {
    /// The code of the answer.
    pub rcode: Rcode,
    /// The kind of the answer.
    pub kind: AnswerKind,
    /// The answer is cut short: the client asks again over TCP.
    pub is_truncated: bool,
    /// What is to be done.
    pub verdict: Verdict,
    /// How the answer was chosen for this client, if it was.
    pub steered: Option<Steered>,
}
