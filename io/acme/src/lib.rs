//! A client of certificate authorities that speak ACME (RFC 8555), with renewal information (RFC 9773).
//!
//! An [`AcmeAccount`] is an account at one directory. [`AcmeAccount::obtain`] turns names and a signing request into a
//! certificate, and [`AcmeAccount::renewal_info`] asks when to replace one. A [`Solver`] of the caller answers the
//! challenges and stores the order's URL, so that a new process continues the order of a killed one.
//!
//! A caller keeps, for each certificate, the key and its signing request from before the order until the certificate is
//! stored, and the URL of the order with them. It passes the URL only to the account that made the order. Where
//! [`AcmeError::is_account_gone`], it creates an account anew. An account reads its directory once: restore it now and
//! then.
//!
//! Every call has bounds on time and size, follows no redirect, and goes over verified TLS. An [`AcmeError`] says who
//! is at fault: its [`AcmeError::failure`] is what the schedule of `sallyport-acme-schedule` goes by.

mod account;
mod authorize;
mod certificate;
mod challenge;
mod config;
mod directory;
mod error;
mod external_account;
mod http;
mod order;
mod presented;
mod problem;
mod trust;

pub use account::{AcmeAccount, RenewalWindow};
pub use challenge::{BoxFuture, Challenge, Solver, TLS_ALPN_PROTOCOL};
pub use config::{DirectoryConfig, MAX_CONTACT_BYTES};
pub use directory::Directory;
pub use error::AcmeError;
pub use external_account::{ExternalAccount, ExternalAccountError, MAX_EXTERNAL_ACCOUNT_BYTES};
pub use http::{CALL_TIMEOUT, MAX_ANSWER_BYTES, MAX_RETRY_AFTER_SECONDS};
pub use order::{CertificateRequest, MAX_NAMES, MAX_TIME_LIMIT, Obtained};
pub use sallyport_acme_schedule::ChallengeKind;
