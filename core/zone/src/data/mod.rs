//! What the server knows: zones built from records, and the view, which changes without a new zone.
//!
//! May use: `name`, `record`, `query`, `dnssec`, `steer`.

mod build;
mod changes;
mod https;
mod lookup;
mod steering;
mod view;
mod zone;
mod zones;

pub use build::{MAX_ZONE_RECORDS, Soa, ZoneError};
pub use changes::{MAX_HISTORY, MAX_HISTORY_RECORDS, ZoneChange};
pub use https::HttpPorts;
pub(crate) use lookup::Found;
pub use steering::{OTHER_REGION, REGION_SLOTS, Site, Steered, Steering};
pub use view::{AddressSets, Asker, Client, MAX_ADDRESSES, MAX_CHALLENGES, MAX_GROUPS, View, ViewError};
pub use zone::Zone;
pub(crate) use zone::{AddressSource, Node};
pub use zones::{MAX_ZONES, Zones, ZonesError};
