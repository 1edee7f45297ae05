//! Orders of an operator about edges.

use serde::{Deserialize, Serialize};

use super::Place;

/// What edges are to do with their announcements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderKind {
    /// Neighbours prefer other routes; the edge still announces, as the last resort.
    Maintain,
    /// Neighbours prefer other routes; once flows have moved or ended, the edge withdraws, and removes its addresses.
    Drain,
}

/// An order that holds until an operator takes it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// For which edges.
    pub place: Place,
    /// What they do.
    pub kind: OrderKind,
    /// Since when, in milliseconds since 1970 (UTC), by the clock of control.
    pub since_ms: i64,
}
