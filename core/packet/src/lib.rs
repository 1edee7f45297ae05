//! The reference model of the packet path: what a program in XDP does with a packet, as pure functions.
//!
//! The model is the oracle of tests against the real programs. Time, hashes' seeds and
//! the packet's bytes are arguments. [`layout`] has the layout of every map that a program reads.
//!
//! [`parse`] reads frames. [`checksum`] computes and changes checksums. [`route`] has the forwarding tables.
//! [`forward()`](forward::forward) is the router: [`admit`](forward::admit) and [`send`](forward::send), each of named
//! steps. A NAT translates between the two. [`nat`], [`balance`] and [`filter`] translate, spread and refuse. [`dump`]
//! filters and prints frames. [`follow`] keeps the forwarding tables equal to the kernel's routes. [`generate`] has what
//! a generator sends, and the search for its rate.

pub mod balance;
pub mod checksum;
pub mod dump;
pub mod filter;
pub mod follow;
pub mod forward;
pub mod generate;
pub mod layout;
pub mod nat;
pub mod parse;
pub mod route;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
