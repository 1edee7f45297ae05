//! The CAs of an installation.

use serde::{Deserialize, Serialize};

/// The directories of Let's Encrypt: for certificates that browsers trust, and for tries.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// One of the configured directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directory {
    /// The CA of choice.
    Primary,
    /// The CA for when the first fails.
    Fallback,
    /// The primary CA's directory for tries. Its certificates are never stored.
    Staging,
}

/// A CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The URL of its directory.
    pub directory_url: String,
    /// The URL of the account, once there is one.
    pub account_url: Option<String>,
}

/// The CAs of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// The CA of choice.
    pub primary: Authority,
    /// The CA for when the first fails.
    pub fallback: Option<Authority>,
    /// The directory for tries after a failure.
    pub staging_url: Option<String>,
}

impl Directories {
    /// The CAs, with the staging directory of the first if it is known.
    #[must_use]
    pub fn new(primary: Authority, fallback: Option<Authority>) -> Self {
        let staging_url = staging_url(&primary.directory_url).map(str::to_owned);
        Self { primary, fallback, staging_url }
    }

    /// The configured production directory with this URL.
    pub(crate) fn find(&self, directory_url: &str) -> Option<(Directory, &Authority)> {
        let is_it = |authority: &&Authority| authority.directory_url == directory_url;
        let primary = Some(&self.primary).filter(is_it).map(|authority| (Directory::Primary, authority));
        primary.or_else(|| Some((Directory::Fallback, self.fallback.as_ref().filter(is_it)?)))
    }
}

/// The staging directory that belongs to a directory, if one is known.
#[must_use]
pub fn staging_url(directory_url: &str) -> Option<&'static str> {
    (directory_url == LETS_ENCRYPT).then_some(LETS_ENCRYPT_STAGING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_directory_has_staging() {
        assert_eq!(staging_url(LETS_ENCRYPT), Some(LETS_ENCRYPT_STAGING));
        assert_eq!(staging_url(LETS_ENCRYPT_STAGING), None);
        assert_eq!(staging_url("https://ca.example/dir"), None);
    }
}
