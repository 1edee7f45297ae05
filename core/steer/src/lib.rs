//! Steering: a closed loop that gives every origin what it can carry, from the nearest edges. Pure: time is an
//! argument.
//!
//! Each edge sends a [`report::LoadReport`] each second: what comes in, what its origins answer, and which quotas it
//! has. The leading control gives them to a [`plan::Planner`], which sends each edge a [`report::QuotaAssignment`]. The
//! quotas of all edges for an origin are never more than the origin can carry, also while messages are lost or late,
//! while edges die, and while two controls believe that they lead. An edge serves by its [`quota::SocketQuotas`] alone,
//! and needs nobody to decide about a request.
//!
//! - [`solver`] finds the cheapest distribution: least way first, and no more than fits.
//! - [`capacity`] learns what an origin can carry, where its owner does not say.
//! - [`plan`] turns reports into quotas, and says why.
//! - [`quota`] is the side of the edge, and [`delta`] keeps its reports short.

pub mod capacity;
pub mod delta;
pub mod plan;
pub mod quota;
pub mod report;
pub mod solver;

use std::time::Duration;

/// A rate in thousandths of a request per second, or a number of connections in thousandths.
pub type Amount = u64;

/// The thousandths of an [`Amount`].
pub const PER_UNIT: Amount = 1_000;
/// How long a quota is valid after the report that it answers.
pub const TERM: Duration = Duration::from_secs(10);
/// How often an edge reports.
pub const REPORT_PERIOD: Duration = Duration::from_secs(1);
