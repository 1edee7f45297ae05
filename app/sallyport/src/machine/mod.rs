//! This machine: its users, the Sallyport processes that run on it, and the notes that servers leave on it, and who gives commands.
//! Uses no other room.

pub(crate) mod author;
pub(crate) mod processes;
pub(crate) mod server_note;
pub(crate) mod users;
