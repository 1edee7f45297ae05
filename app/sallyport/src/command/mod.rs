//! The commands, one file for each noun.
//! Uses `roles`, `installation`, `context`, `view`, `args`, `machine`, `runtime` and `failure`.

pub(crate) mod account;
pub(crate) mod anycast;
mod api_status;
pub(crate) mod audit;
pub(crate) mod authority;
pub(crate) mod balancer;
pub(crate) mod catchment;
pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod companion;
pub(crate) mod connect;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod domain;
pub(crate) mod edge;
pub(crate) mod egress;
pub(crate) mod flow;
pub(crate) mod hash_match;
mod health;
pub(crate) mod hold;
pub(crate) mod inspect;
pub(crate) mod invitation;
pub(crate) mod link;
pub(crate) mod login;
pub(crate) mod login_session;
pub(crate) mod member;
pub(crate) mod network;
pub(crate) mod options;
pub(crate) mod organisation;
pub(crate) mod person;
pub(crate) mod ping;
pub(crate) mod policy;
pub(crate) mod prefixes;
pub(crate) mod provider;
pub(crate) mod run;
pub(crate) mod service_token;
pub(crate) mod socket;
pub(crate) mod ssh_ca;
pub(crate) mod ssh_key;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod trust;
pub(crate) mod tunnel;
mod tunnel_view;
pub(crate) mod version;
pub(crate) mod zone;

use sallyport_model::{DisplayName, Email};

use crate::failure::{Failure, Kind};

/// Parses an e-mail address, with the API's error.
pub(crate) fn email(text: &str) -> Result<Email, Failure> {
    text.parse().map_err(|error: sallyport_model::EmailError| Failure::new(Kind::Refused, error.to_string()))
}

/// Parses a name, with the API's error.
pub(crate) fn display_name(text: &str) -> Result<DisplayName, Failure> {
    text.parse().map_err(|error: sallyport_model::DisplayNameError| {
        Failure::new(Kind::Refused, format!("{text:?} cannot be a name: {error}"))
    })
}
