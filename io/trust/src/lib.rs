//! Putting a root certificate into the store that the programs of a Linux machine read, and taking it out again.
//!
//! Each distribution has a folder for the administrator's own roots and a program that rebuilds the store from it.
//! Firefox and Chromium keep stores of their own, one for each person: see [`BrowserStores`].

mod browsers;
mod layout;
mod store;

pub use browsers::{Browser, BrowserChange, BrowserStore, BrowserStores, CERTUTIL_PACKAGE, NoCertutil, Person};
pub use store::{InstallError, Installed, RemoveError, Removed, Run, StoreError, TrustStore};

use std::path::Path;

/// Puts the root certificate of this PEM file into the system's store. Doing it again is no error.
///
/// # Errors
/// One sentence that says what is missing or wrong, and what to do; the store is as it was then.
pub fn install(ca_pem: &Path) -> Result<Installed, InstallError> {
    TrustStore::system().install(ca_pem)
}

/// Takes the root certificate with this fingerprint out of the system's store, if [`install`] put it there.
///
/// # Errors
/// One sentence that says what is missing or wrong, and what to do.
pub fn remove(fingerprint: &str) -> Result<Removed, RemoveError> {
    TrustStore::system().remove(fingerprint)
}
