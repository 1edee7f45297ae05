//! Control: the API over the store. Control also publishes the sockets to the edges.
//!
//! A request runs through `request::middleware` (id, problem body, metrics). `request` takes it apart, and a handler in
//! `api`, `login`, `device`, `mysocket` or `node` answers it. `service` does the work. A change is committed to the
//! store first and published to the edges after. When the answer says "done", the next request at an edge sees the
//! change.
//!
//! The rooms from bottom to top; each uses only what stands before it:
//! `clock`, `problem`, `metrics`, `cluster`, `security`, `mail`, `config`, `state`, `audit`, `request`, `service`,
//! `certificates`, `background`, `login`, `device`, `desk`, `api`, `mysocket`, `node`, `router`, `start`.

mod api;
mod audit;
mod background;
mod certificates;
mod clock;
mod cluster;
mod config;
mod desk;
mod device;
mod login;
mod mail;
mod metrics;
mod mysocket;
mod node;
mod problem;
mod request;
mod router;
mod security;
mod service;
mod start;
mod state;

pub use api::{openapi, openapi_json};
pub use background::{ConfigPublishing, DEFAULT_CATCHMENT_PERIOD};
pub use clock::{Clock, Moment};
pub use config::{
    AcmeConfig, AddressDatabases, ChosenLabels, ControlConfig, DEFAULT_PORT_RANGE, DNS_STEERING_EVERY, EdgeIssuer,
    EdgesConfig, IssueFailure, LONE_EDGE, SignUp, SshInfo, default_ports_per_account,
};
pub use mail::MailHook;
pub use request::via::NodePeer;
pub use sallyport_oidc::Reach;
pub use security::secrets::{Secrets, SecretsError, TOKEN_KEY_FILE};
pub use service::{OperatorReset, SETUP_TOKEN_FILE, reset_account};
pub use state::{
    Control,
    forwards::{ForwardRefusal, MAX_GUEST_SOCKETS_PER_ADDRESS, SshClient, SshTarget},
};
