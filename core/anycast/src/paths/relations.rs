//! What networks are to each other.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};

/// The most relations that are read. All known ones are about 600,000.
pub const MAX_RELATIONS: usize = 2_000_000;
/// The longest line, in bytes.
const MAX_LINE_BYTES: usize = 256;

/// What another network is to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// It carries the network's traffic to everybody, for money.
    Provider,
    /// Each carries traffic to its own customers.
    Peer,
    /// It is served by the network.
    Customer,
}

/// From where a relation is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The role of an own neighbour.
    Session,
    /// A table of relations.
    Table,
    /// It follows from what was chosen, if networks choose as usual.
    Inferred,
}

/// A relation and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Known {
    /// The relation.
    pub relation: Relation,
    /// The source.
    pub source: Source,
}

/// A table of relations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relations {
    /// What the second is to the first; the first is the smaller number.
    of: HashMap<(u32, u32), Relation>,
}

/// A text is no table of relations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelationsError {
    /// A line.
    #[error("line {0} is no relation: use PROVIDER|CUSTOMER|-1 or PEER|PEER|0")]
    Line(usize),
    /// Too many.
    #[error("there are more than {MAX_RELATIONS} relations")]
    TooMany,
}

impl Relation {
    /// How networks prefer its routes.
    pub(super) fn preference(self) -> u8 {
        match self {
            Self::Provider => 0,
            Self::Peer => 1,
            Self::Customer => 2,
        }
    }

    /// The relation seen from the other side.
    #[must_use]
    pub fn reverse(self) -> Self {
        match self {
            Self::Provider => Self::Customer,
            Self::Peer => Self::Peer,
            Self::Customer => Self::Provider,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "provider",
            Self::Peer => "peer",
            Self::Customer => "customer",
        })
    }
}

impl Relations {
    /// Reads the form that CAIDA publishes: `PROVIDER|CUSTOMER|-1` and `PEER|PEER|0`, with `#` before remarks. What
    /// follows a third `|` is ignored.
    ///
    /// # Errors
    /// The first line that is none of these.
    pub fn parse(text: &str) -> Result<Self, RelationsError> {
        let mut relations = Self::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = || RelationsError::Line(index + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(wrong());
            }
            let mut parts = line.split('|');
            let mut number = || parts.next().and_then(number_of).ok_or_else(wrong);
            let (one, other) = (number()?, number()?);
            let relation = match parts.next() {
                Some("-1") => Relation::Customer,
                Some("0") => Relation::Peer,
                _ => return Err(wrong()),
            };
            if one == other {
                return Err(wrong());
            }
            if relations.of.len() == MAX_RELATIONS {
                return Err(RelationsError::TooMany);
            }
            relations.set(one, other, relation);
        }
        Ok(relations)
    }

    /// Sets what the other network is to one.
    pub fn set(&mut self, one: u32, other: u32, relation: Relation) {
        let (key, relation) = if one < other { ((one, other), relation) } else { ((other, one), relation.reverse()) };
        self.of.insert(key, relation);
    }

    /// What the other network is to one.
    #[must_use]
    pub fn of(&self, one: u32, other: u32) -> Option<Relation> {
        if one < other {
            self.of.get(&(one, other)).copied()
        } else {
            self.of.get(&(other, one)).map(|relation| relation.reverse())
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// Reads the number of a network.
pub(super) fn number_of(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_read_from_both_sides() {
        let relations = Relations::parse("# a remark\n3356|209|-1\n\n1299|3356|0|bgp\n").unwrap();
        assert_eq!(relations.of(3356, 209), Some(Relation::Customer));
        assert_eq!(relations.of(209, 3356), Some(Relation::Provider));
        assert_eq!((relations.of(3356, 1299), relations.of(1299, 3356)), (Some(Relation::Peer), Some(Relation::Peer)));
        assert_eq!((relations.of(209, 1299), relations.len()), (None, 2));
    }

    #[test]
    fn wrong_lines_are_named() {
        for bad in ["1|2", "1|2|1", "a|2|0", "|2|0", "1|1|0", "4294967296|2|0", "+1|2|0", "1 2 0"] {
            assert_eq!(Relations::parse(&format!("1|2|0\n{bad}")), Err(RelationsError::Line(2)), "{bad}");
        }
        assert_eq!(Relations::parse(&format!("1|2|0|{}", "x".repeat(300))), Err(RelationsError::Line(1)));
    }
}
