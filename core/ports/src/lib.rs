//! Egress addresses that machines share by slices of ports, and the leases of slices.
//!
//! [`Slice`] is 2,048 ports of an [`EgressAddress`]. [`Leases`] is control's side: it grants, moves and ends leases, and
//! never lets two machines open connections from one slice. [`Holder`] is the machine's side. [`order`] chooses an
//! address for a visitor, and [`geofeed()`] tells the world where addresses are.
//!
//! A lease ends by time on both sides. The machine counts from the moment at which it sent a beat that the bus has
//! acknowledged. Control counts from the moment at which it received a beat, and waits for a grace besides. So the
//! machine is always first.

mod address;
mod choice;
mod geofeed;
mod holder;
mod lease;
mod leases;
mod slice;

pub use self::{
    address::{AddressError, EgressAddress, MAX_CITY_CHARS, MAX_PURPOSES, ORIGINS, Purpose, PurposeError},
    choice::{Candidate, Match, Wanted, order},
    geofeed::geofeed,
    holder::{Holder, HolderRecord, NoSlice},
    lease::{Lease, Phase, SliceKey, SliceUse, UseState},
    leases::{LeaseError, LeaseTimes, Leases},
    slice::{HANDED_OUT, SLICE_PORTS, Slice, SliceError},
};

/// The most egress addresses of an installation.
pub const MAX_ADDRESSES: usize = 64;
