//! The directory of a CA, and what its account needs.

use std::sync::Arc;

use rustls::ClientConfig;
use sallyport_net::Trust;

use crate::{AcmeError, ExternalAccount, trust::client_config_of_pem};

/// Bound on an e-mail address, in bytes.
pub const MAX_CONTACT_BYTES: usize = 254;

/// The directory of a CA, and what its account needs.
#[derive(Debug, Clone, Default)]
pub struct DirectoryConfig {
    /// The URL of the directory. Plain `http` only at this machine.
    pub url: String,
    /// The root certificates of the CA's site in PEM, in place of the system's. The site's own certificate is one, too.
    pub roots_pem: Option<String>,
    /// The e-mail address that the CA may write to.
    pub contact: Option<String>,
    /// The profile of certificates, for orders that name none.
    pub profile: Option<String>,
    /// The account at the CA's own site, where the CA demands one.
    pub external_account: Option<ExternalAccount>,
}

impl DirectoryConfig {
    /// The contact as a URL.
    pub(crate) fn contact_url(&self) -> Result<Option<String>, AcmeError> {
        let Some(contact) = &self.contact else { return Ok(None) };
        let is_address = contact.len() <= MAX_CONTACT_BYTES
            && contact.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
            && contact.bytes().all(|byte| byte.is_ascii_graphic() && !b"?,%<>\"".contains(&byte));
        //= RFC 8555 section 7.3
        // Clients MUST NOT provide a "mailto" URL in the "contact" field that contains "hfields" or more than one
        // "addr-spec" in the "to" component.
        if !is_address {
            return Err(AcmeError::Config("the contact for the CA is not one e-mail address".to_owned()));
        }
        Ok(Some(format!("mailto:{contact}")))
    }

    /// The configuration of TLS with the CA's site.
    pub(crate) async fn tls(&self) -> Result<Arc<ClientConfig>, AcmeError> {
        match &self.roots_pem {
            Some(pem) => client_config_of_pem(pem).ok_or_else(|| {
                AcmeError::Config("the root certificates for the CA hold no usable certificate in PEM".to_owned())
            }),
            None => system_tls().await,
        }
    }
}

async fn system_tls() -> Result<Arc<ClientConfig>, AcmeError> {
    static SYSTEM: tokio::sync::OnceCell<Arc<ClientConfig>> = tokio::sync::OnceCell::const_new();
    let load = async || {
        sallyport_net::client_config(&Trust::System, &[b"http/1.1"])
            .map_err(|error| AcmeError::Config(error.to_string()))
    };
    SYSTEM.get_or_try_init(load).await.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(text: &str) -> Result<Option<String>, AcmeError> {
        DirectoryConfig { contact: Some(text.to_owned()), ..DirectoryConfig::default() }.contact_url()
    }

    #[test]
    fn a_contact_is_one_address() {
        assert_eq!(contact("me+acme@example.com").unwrap().as_deref(), Some("mailto:me+acme@example.com"));
        assert_eq!(DirectoryConfig::default().contact_url().unwrap(), None);
        for bad in
            ["", "me", "@a", "a@", "a@b?subject=x", "a@b,c@d", "a b@c", "a@b\r\n", &format!("a@{}", "b".repeat(254))]
        {
            assert!(contact(bad).is_err(), "{bad}");
        }
    }
}
