//! What is public of the certificate authorities of organisations, in memory.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use sallyport_model::AccountId;
use sallyport_store::{AuthorityKind, StoredAuthority};

/// What everybody may know of the authorities of an organisation.
#[derive(Debug, Clone, Default)]
pub(crate) struct PublicAuthorities {
    /// The certificate in PEM of the one for client certificates.
    pub(crate) client_tls: Option<String>,
    /// The public key of the one for ssh keys.
    pub(crate) ssh: Option<String>,
}

/// What is public of all authorities.
#[derive(Debug, Default)]
pub(crate) struct AuthorityCache(Mutex<HashMap<AccountId, PublicAuthorities>>);

impl AuthorityCache {
    pub(crate) fn of(&self, organisation: AccountId) -> PublicAuthorities {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&organisation).cloned().unwrap_or_default()
    }

    pub(crate) fn insert(&self, authority: &StoredAuthority) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(authority.organisation).or_default();
        match authority.kind {
            AuthorityKind::ClientTls => known.client_tls = Some(sallyport_pki::certificate_pem(&authority.certificate)),
            AuthorityKind::Ssh => known.ssh = String::from_utf8(authority.certificate.clone()).ok(),
        }
    }
}
