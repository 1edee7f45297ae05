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

/// Adds the root certificate in this PEM file to the system's store. Idempotent.
///
/// # Errors
/// One sentence with the problem and the remedy; the store is unchanged.
pub fn install(ca_pem: &Path) -> Result<Installed, InstallError> {
    TrustStore::system().install(ca_pem)
}

/// Removes the root certificate with this fingerprint from the system's store, if [`install`] added it.
///
/// # Errors
/// One sentence with the problem and the remedy.
pub fn remove(fingerprint: &str) -> Result<Removed, RemoveError> {
    TrustStore::system().remove(fingerprint)
}
