//! A client of Sallyport's API: one typed method for each endpoint, over HTTPS that is always verified.
//!
//! Every call is one connection of its own, bounded in time and size. Redirects are not followed: an address that
//! answers with one is not the API. A saved session is renewed by itself when its access token ends.

mod account;
mod address;
mod client;
mod comers;
mod error;
mod flows;
mod organisation;
mod origins;
mod policy_ref;
mod probe;
mod session;
mod socket_ref;
mod transport;

pub use address::{AddressError, ApiAddress};
pub use client::{ApiClient, Auth, ClientConfig, MAX_LIST_ITEMS};
pub use error::ClientError;
pub use policy_ref::{PolicyRef, PolicyRefError};
pub use probe::ApiProbe;
pub use session::{SessionLock, SessionStore, SessionStoreError};
pub use socket_ref::{SocketRef, SocketRefError, TunnelRef, TunnelRefError};
pub use transport::{CALL_TIMEOUT, MAX_ANSWER_BYTES};
