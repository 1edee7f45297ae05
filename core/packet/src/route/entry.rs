//! What a cell of a table says.

use crate::layout::{ENTRY_HOP_MASK, ENTRY_LENGTH_SHIFT, ENTRY_NODE};

/// A decoded cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// No route.
    None,
    /// A block or node decides.
    Node(u32),
    /// A route: the length of its prefix, and the number of its next hop.
    Route {
        /// Bits of the prefix.
        length: u8,
        /// Number of the next hop, less than 2^23.
        next_hop: u32,
    },
}

impl Entry {
    /// Decodes a cell.
    #[must_use]
    pub fn decode(cell: u32) -> Self {
        if cell & ENTRY_NODE != 0 {
            return Self::Node(cell & !ENTRY_NODE);
        }
        match (cell >> ENTRY_LENGTH_SHIFT) as u8 {
            0 => Self::None,
            length => Self::Route { length: length - 1, next_hop: cell & ENTRY_HOP_MASK },
        }
    }

    /// Encodes a cell.
    #[must_use]
    pub fn encode(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Node(number) => ENTRY_NODE | number,
            Self::Route { length, next_hop } => {
                (u32::from(length) + 1) << ENTRY_LENGTH_SHIFT | next_hop & ENTRY_HOP_MASK
            }
        }
    }
}

/// Length plus 1 of a cell's prefix; 0 without a route. The cell is no node.
pub(super) fn rank(cell: u32) -> u32 {
    cell >> ENTRY_LENGTH_SHIFT
}

pub(super) fn node(cell: u32) -> Option<u32> {
    (cell & ENTRY_NODE != 0).then_some(cell & !ENTRY_NODE)
}
