//! The articles about packets, by `sallyport-packet`: the generator, what forwards, and what a packet costs there.

mod bed;
mod forward;
mod generate;
mod xdp;

pub(in crate::measurements) use forward::Forward;
pub(in crate::measurements) use generate::Generate;
pub(in crate::measurements) use xdp::Xdp;
