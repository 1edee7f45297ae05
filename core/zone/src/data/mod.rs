//! What the server knows: zones built from records, and the view, which changes without a new zone.
//!
//! May use: `name`, `record`, `query`, `dnssec`.

mod build;
mod changes;
mod https;
mod lookup;
mod view;
mod zone;
mod zones;

pub use build::{MAX_ZONE_RECORDS, Soa, ZoneError};
pub use changes::{MAX_HISTORY, MAX_HISTORY_RECORDS, ZoneChange};
pub use https::HttpPorts;
pub(crate) use lookup::Found;
pub use view::{AddressSets, Client, MAX_ADDRESSES, MAX_CHALLENGES, MAX_GROUPS, View, ViewError};
pub use zone::Zone;
pub(crate) use zone::{AddressSource, Node};
pub use zones::{MAX_ZONES, Zones, ZonesError};
