//! Which region a client is answered: what was measured for its network, and what dials and shares of regions let
//! through.
//!
//! - [`plan()`] makes the parts that control publishes from what was measured.
//! - [`SteeringTable`] has all parts, ready for lookups.
//! - [`choose()`] chooses a region for who asks. Nothing of a query is kept.
//!
//! May use: `query`.

mod choose;
mod networks;
mod plan;
mod table;

pub use choose::{Asking, Choice, ChoiceReason, Keep, REASONS, believed_network, choose};
pub use plan::{MeasuredNetwork, MeasuredResolver, PlanInput, RegionTime, plan};
pub use table::SteeringTable;
