//! Where clients land: the rows of the catchment, and measurements.
//!
//! May use: `db`.

pub(crate) mod addresses;
pub(crate) mod measurements;
pub(crate) mod rows;
