//! Tests of associations, on virtual time.

mod interface;
