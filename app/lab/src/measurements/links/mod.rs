//! Network namespaces without names, and links between them: with a rate, a delay and losses, or plain ones.

mod carrier;
mod space;
mod sum;
mod train;
mod veth;
mod wire;

pub(crate) use carrier::Link;
pub(crate) use space::Space;
pub(crate) use sum::checksum;
pub(crate) use veth::connect;
pub(crate) use wire::Shape;
