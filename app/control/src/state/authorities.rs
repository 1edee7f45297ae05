//! The public parts of organisations' certificate authorities, in memory.

use std::collections::HashMap;

use parking_lot::Mutex;
use sallyport_model::AccountId;
use sallyport_store::{AuthorityKind, StoredAuthority};

/// The public parts of an organisation's certificate authorities.
#[derive(Debug, Clone, Default)]
pub(crate) struct PublicAuthorities {
    /// The certificate in PEM of the authority for client certificates.
    pub(crate) client_tls: Option<String>,
    /// The public key of the authority for ssh keys.
    pub(crate) ssh: Option<String>,
}

/// The public parts of all certificate authorities.
#[derive(Debug, Default)]
pub(crate) struct AuthorityCache(Mutex<HashMap<AccountId, PublicAuthorities>>);

impl AuthorityCache {
    pub(crate) fn of(&self, organisation: AccountId) -> PublicAuthorities {
        self.0.lock().get(&organisation).cloned().unwrap_or_default()
    }

    pub(crate) fn insert(&self, authority: &StoredAuthority) {
        let mut known = self.0.lock();
        let known = known.entry(authority.organisation).or_default();
        match authority.kind {
            AuthorityKind::ClientTls => known.client_tls = Some(sallyport_pki::certificate_pem(&authority.certificate)),
            AuthorityKind::Ssh => known.ssh = String::from_utf8(authority.certificate.clone()).ok(),
        }
    }
}
