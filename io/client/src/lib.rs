//! A client of Sallyport's API: one typed method for each endpoint, over HTTPS with verified certificates.
//!
//! Every call has a connection of its own, with a bound on time and size. Redirects are not followed: an address that
//! redirects is not the API. A saved session is renewed automatically when its access token expires.

mod access_control;
mod account;
mod address;
mod anycast;
mod balancers;
mod catchment;
mod client;
mod dns_steering;
mod egress;
mod error;
mod flows;
mod names;
mod networks;
mod organisation;
mod origins;
mod policy_ref;
mod probe;
mod session;
mod socket_ref;
mod transport;
mod ways;

pub use address::{AddressError, ApiAddress};
pub use client::{ApiClient, Auth, ClientConfig, MAX_LIST_ITEMS};
pub use error::{ClientError, Lapse, ProblemAnswer};
pub use policy_ref::{PolicyRef, PolicyRefError};
pub use probe::ApiProbe;
pub use session::{SessionLock, SessionStore, SessionStoreError};
pub use socket_ref::{SocketRef, SocketRefError, TunnelRef, TunnelRefError};
pub use transport::{CALL_TIMEOUT, MAX_ANSWER_BYTES};
