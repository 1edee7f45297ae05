//! Certificates of public authorities that edges serve, and the challenges by which the authorities verify names.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use sallyport_model::{AcmeChallenge, CertificateId, ChallengeId, ChallengeKind, ServedCertificate};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The certificates that edges serve. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServedCertificates {
    by_id: Arc<RwLock<HashMap<CertificateId, Arc<ServedCertificate>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl ServedCertificates {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Adds a certificate, or replaces its former version.
    pub fn put(&self, certificate: ServedCertificate) {
        let id = certificate.id;
        let is_known = self.by_id.read().get(&id).is_some_and(|known| **known == certificate);
        if !is_known {
            self.by_id.write().insert(id, Arc::new(certificate));
            self.changed.send_replace(());
        }
        self.hints.notify(ConfigKey::Certificate(id));
    }

    /// Removes a certificate.
    pub fn remove(&self, id: CertificateId) {
        self.by_id.write().remove(&id);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Certificate(id));
    }

    /// Every certificate, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<ServedCertificate>> {
        self.by_id.read().values().cloned().collect()
    }

    /// The certificate with this id.
    #[must_use]
    pub fn get(&self, id: CertificateId) -> Option<Arc<ServedCertificate>> {
        self.by_id.read().get(&id).cloned()
    }

    /// Changes after each change of the certificates from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// The challenges that edges answer. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AcmeChallenges {
    by_id: Arc<RwLock<HashMap<ChallengeId, Arc<AcmeChallenge>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl AcmeChallenges {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Adds a challenge.
    pub fn put(&self, challenge: AcmeChallenge) {
        let id = challenge.id;
        self.by_id.write().insert(id, Arc::new(challenge));
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Challenge(id));
    }

    /// Removes a challenge.
    pub fn remove(&self, id: ChallengeId) {
        self.by_id.write().remove(&id);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Challenge(id));
    }

    /// Changes after each change of the challenges from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The answer to the challenge with this token at port 80 (RFC 8555 section 8.3).
    #[must_use]
    pub fn http_answer(&self, token: &str) -> Option<String> {
        let challenges = self.by_id.read();
        let found = challenges.values().find(|one| one.kind == ChallengeKind::Http01 && one.token == token);
        found.map(|challenge| challenge.key_authorization.clone())
    }

    /// The challenge of a name at port 443 (RFC 8737). `name` is in lower case.
    #[must_use]
    pub fn tls_challenge(&self, name: &str) -> Option<Arc<AcmeChallenge>> {
        let challenges = self.by_id.read();
        challenges.values().find(|one| one.kind == ChallengeKind::TlsAlpn01 && one.name == name).cloned()
    }

    /// Every challenge, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<AcmeChallenge>> {
        self.by_id.read().values().cloned().collect()
    }

    /// Whether a challenge is known.
    #[must_use]
    pub fn has(&self, id: ChallengeId) -> bool {
        self.by_id.read().contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_only_in_its_own_way() {
        let challenges = AcmeChallenges::default();
        let challenge = AcmeChallenge {
            id: ChallengeId::from_random([1; 16]),
            name: "app.example.com".into(),
            kind: ChallengeKind::Http01,
            token: "tok".into(),
            key_authorization: "tok.key".into(),
        };
        challenges.put(challenge.clone());
        assert_eq!(challenges.http_answer("tok").as_deref(), Some("tok.key"));
        assert_eq!(challenges.http_answer("other"), None);
        assert!(challenges.tls_challenge("app.example.com").is_none(), "this one is for port 80");
        challenges.remove(challenge.id);
        assert!(challenges.http_answer("tok").is_none() && !challenges.has(challenge.id));
    }
}
