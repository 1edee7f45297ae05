//! Network namespaces without names, and links between them with a rate, a delay and losses.

mod carrier;
mod space;
mod sum;
mod train;
mod wire;

pub(crate) use carrier::Link;
pub(crate) use space::Space;
pub(crate) use sum::checksum;
pub(crate) use wire::Shape;
