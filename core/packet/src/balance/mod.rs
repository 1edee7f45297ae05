//! Backends of one address by Maglev, and slices of ports. Uses the parser, the layout and the crate of balancing.

mod backends;
mod slices;

pub use backends::{Backend, BackendError, Backends};
pub use slices::{PortSlices, SliceError, steering_port};
