//! Links of a machine: which of them a connector uses, how it may use them, and which carry now.
//!
//! [`LinkChoice`] is what the user wants. [`select()`] finds the links among the [`Device`]s of the machine.
//! [`LinkTable`] is the state machine of the links: time is an argument, and events come out by
//! [`LinkTable::poll_event`].

mod choice;
mod device;
mod headers;
mod select;
mod table;

pub use choice::{ChoiceError, LinkChoice, LinkSpec, MAX_LINKS, MAX_WEIGHT, Properties, Selector};
pub use device::{Device, DeviceKind};
pub use headers::{TCP_HEADER_BYTES, UDP_HEADER_BYTES, ip_header_bytes, segment_bytes};
pub use select::{Link, SelectError, Unused, select, unused};
pub use table::{LinkEvent, LinkEventKind, LinkState, LinkTable, MAX_REMEMBERED};
