//! The commands, one file for each noun.

pub(crate) mod completion;
pub(crate) mod version;
