//! This machine: its users, the Sallyport processes that run on it, and the notes that servers leave on it.
//! Uses no other room.

pub(crate) mod local;
pub(crate) mod processes;
pub(crate) mod users;
