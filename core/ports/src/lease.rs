//! A lease of a slice, and what its machine says of it.

use std::net::IpAddr;

use sallyport_model::EdgeId;
use serde::{Deserialize, Serialize};

use crate::Slice;

/// A slice of an address.
pub type SliceKey = (IpAddr, Slice);

/// The lease of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// The slice.
    pub slice: Slice,
    /// The machine that has the slice, or had it last.
    pub machine: EdgeId,
    /// Number of the lease among those of the slice. A later one is greater.
    pub term: u64,
    /// How long the lease goes on without a beat of its machine, in seconds.
    pub lasts_seconds: u32,
    /// How it stands.
    pub phase: Phase,
}

/// How a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// The machine opens connections from the slice.
    Held,
    /// The machine opens no more. Its flows go on.
    Draining {
        /// The next machine; nobody if the slice is released.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<EdgeId>,
        /// How long the flows may go on once the machine has stopped opening new ones, in seconds.
        within_seconds: u32,
    },
    /// The machine was silent for too long. It gets the slice again when it is back, unless another one has it by then.
    Lapsed,
    /// Nobody has the slice.
    Free,
}

impl Lease {
    /// The slice of the address.
    #[must_use]
    pub fn key(&self) -> SliceKey {
        (self.address, self.slice)
    }

    /// The machine to which packets for the slice go.
    #[must_use]
    pub fn receiver(&self) -> Option<EdgeId> {
        (self.phase != Phase::Free).then_some(self.machine)
    }
}

/// What a machine does with a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UseState {
    /// It does not use the lease yet.
    Waiting,
    /// It opens connections from the slice.
    Open,
    /// It opens no connection under this lease any more.
    Closed,
}

/// A machine's report about a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceUse {
    /// The address.
    pub address: IpAddr,
    /// The slice.
    pub slice: Slice,
    /// The lease.
    pub term: u64,
    /// What the machine does with it.
    pub state: UseState,
    /// Whether connections from the slice are open.
    #[serde(default)]
    pub has_flows: bool,
    /// Why the machine cannot use the slice, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
