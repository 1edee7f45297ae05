//! Anycast: which prefixes edges announce by BGP, to which neighbours, and when. Pure: time is an argument.

pub mod bird;
pub mod floor;
pub mod flows;
pub mod health;
pub mod model;
pub mod paths;
