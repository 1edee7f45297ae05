//! A filter in the words of tcpdump: parsed once, then asked for each frame.

use ipnet::IpNet;

use super::{
    Glance,
    expression::{self, Test},
};

/// The most bytes of a filter.
pub const MAX_FILTER_BYTES: usize = 8_192;
/// The most nested parentheses and negations.
pub(super) const MAX_DEPTH: usize = 64;

/// Why a filter is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Too many bytes.
    #[error("the filter has more than {MAX_FILTER_BYTES} bytes")]
    TooLong,
    /// Too many levels.
    #[error("the filter has more than {MAX_DEPTH} parentheses and negations within one another")]
    TooDeep,
    /// Another word.
    #[error("the filter has {found:?} at character {at}, where {wanted} is expected")]
    Unexpected {
        /// The word.
        found: String,
        /// Its place, from 1.
        at: usize,
        /// What is expected.
        wanted: &'static str,
    },
    /// The filter ends.
    #[error("the filter ends where {0} is expected")]
    Ended(&'static str),
    /// A network with bits behind its length.
    #[error("the network {0} has bits behind its length: write {1}")]
    HostBits(String, IpNet),
    /// Two families.
    #[error("the filter asks {0} for an address of the other family, {1}")]
    OtherFamily(&'static str, String),
    /// A combination without a sense.
    #[error("the filter has {0:?} before {1:?}, which does not go together")]
    Apart(&'static str, &'static str),
}

/// One step of a filter, in the order of evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// Asks the frame.
    Test(Test),
    /// The opposite of the last result.
    Not,
    /// Both of the last two.
    And,
    /// One of the last two.
    Or,
}

/// A filter. The empty one takes every frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    ops: Vec<Op>,
}

impl Filter {
    /// Reads a filter as tcpdump's users write it: `and` and `or` bind alike, from the left; `not` binds more.
    ///
    /// # Errors
    /// The text is no filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(FilterError::TooLong);
        }
        Ok(Self { ops: expression::read(text)? })
    }

    /// Whether the filter takes a frame of this length on the wire, of which the end may be missing.
    #[must_use]
    pub fn is_match(&self, frame: &[u8], length: u32) -> bool {
        if self.ops.is_empty() {
            return true;
        }
        let glance = Glance::of(frame);
        let mut stack: Vec<bool> = Vec::with_capacity(8);
        for op in &self.ops {
            let value = match op {
                Op::Test(test) => glance.as_ref().is_some_and(|glance| test.is_true(glance, length)),
                Op::Not => !stack.pop().unwrap_or_default(),
                Op::And => stack.pop().unwrap_or_default() & stack.pop().unwrap_or_default(),
                Op::Or => stack.pop().unwrap_or_default() | stack.pop().unwrap_or_default(),
            };
            stack.push(value);
        }
        stack.pop().unwrap_or_default()
    }
}
