//! Links of a machine: which of them a connector uses, how it may use them, and which carry now.
//!
//! [`LinkChoice`] is what the user wants. [`select()`] finds the links among the [`Device`]s of the machine.
//! [`LinkTable`] is the state machine of the links: time is an argument, and events come out by
//! [`LinkTable::poll_event`].

mod choice;
mod device;
mod select;
mod table;

pub use choice::{ChoiceError, LinkChoice, LinkSpec, MAX_LINKS, MAX_WEIGHT, Properties, Selector};
pub use device::{Device, DeviceKind};
pub use select::{Link, SelectError, select};
pub use table::{LinkEvent, LinkEventKind, LinkState, LinkTable, MAX_REMEMBERED};
