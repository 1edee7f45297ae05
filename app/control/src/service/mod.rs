//! The work behind every path: `/v1`, the paths of the original clients, and ssh. Every rule is here once.
//!
//! May use: `audit`, `mail`, `state`, `security`, `config`, `metrics`, `clock`, `problem`.

mod account_access;
mod accounts;
mod anycast;
mod authorities;
mod balancers;
mod catchment;
mod certificates;
mod dns_steering;
mod domains;
mod edges;
mod egress;
mod mail;
mod measurements;
mod networks;
mod operator;
pub(crate) mod origin_health;
mod origins;
mod persons;
mod plans;
mod policies;
pub(crate) mod provider_checks;
mod providers;
mod regions;
pub(crate) mod second_factor;
mod settings;
mod setup;
mod sockets;
mod ssh_forward;
mod ssh_keys;
mod tunnels;
mod zones;

pub use operator::{OperatorReset, reset_account};
pub use setup::SETUP_TOKEN_FILE;

pub(crate) use account_access::{CreatedReset, RESET_PREFIX, RESET_SECONDS};
pub(crate) use accounts::{REFRESH_SECONDS, REFRESH_TOKEN_PREFIX, SessionKind};
pub(crate) use authorities::SshOptions;
pub(crate) use certificates::served;
pub(crate) use networks::{find_machine, machine_to_api};
pub(crate) use persons::{CreatedLink, LINK_PREFIX, LinkPurpose};
pub(crate) use policies::AttachmentChange;
pub(crate) use sockets::Lifetime;
pub(crate) use ssh_keys::PublicKeyText;
pub(crate) use tunnels::ANY_SOCKET;
