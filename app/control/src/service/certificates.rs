//! Certificates for names: what the API shows of them, imports, and early renewals.

use http::StatusCode;
use sallyport_acme_schedule::Schedule;
use sallyport_api::{Certificate, CertificateState, ImportCertificate, Secret};
use sallyport_identity::Purpose;
use sallyport_model::{AccountId, CertificateId, DomainName, ServedCertificate};
use sallyport_net::PublicCertificate;
use sallyport_pki::{CertificateSummary, checked_chain};
use sallyport_store::{CertificateSource, IssuedChain, StoredCertificate, WantedCertificate};

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// The most imported certificates of an organisation.
const MAX_IMPORTED_CERTIFICATES: usize = 1_000;
/// The longest chain, in bytes.
const MAX_CHAIN_BYTES: usize = 40 * 1_024;
/// The longest key in PEM that is imported, in bytes.
const MAX_KEY_BYTES: usize = 16 * 1_024;

/// The certificate as edges serve it; `None` before it is issued.
pub(crate) fn served(stored: StoredCertificate) -> Option<ServedCertificate> {
    let issued = stored.issued?;
    Some(ServedCertificate {
        id: stored.id,
        names: stored.names,
        chain: issued.chain,
        sealed_key: issued.sealed_key,
        not_after: issued.not_after,
    })
}

impl App {
    /// The certificate in the form of the API.
    pub(crate) fn certificate_to_api(&self, stored: &StoredCertificate) -> Certificate {
        let now = self.clock.now().unix_seconds;
        let summary = stored.issued.as_ref().and_then(|issued| CertificateSummary::from_pem(&issued.chain));
        let state = match &stored.issued {
            None => CertificateState::Waiting,
            Some(issued) if issued.not_after <= now => CertificateState::Expired,
            Some(_) if stored.problem.is_some() => CertificateState::Failing,
            Some(_) => CertificateState::Valid,
        };
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Certificate {
            id: stored.id.uuid(),
            names: stored.names.iter().map(ToString::to_string).collect(),
            state,
            source: stored.source.as_str().to_owned(),
            is_of_installation: stored.organisation.is_none(),
            issuer: summary.as_ref().map(|summary| summary.issuer.clone()),
            fingerprint: summary.map(|summary| hex(summary.fingerprint)),
            not_before: stored.issued.as_ref().map(|issued| date(issued.not_before)),
            not_after: stored.issued.as_ref().map(|issued| date(issued.not_after)),
            next_at: (stored.source == CertificateSource::Acme).then(|| date(stored.due_at)),
            problem: stored.problem.clone(),
            created_at: date(stored.created_at),
        }
    }

    /// The certificates that a caller may see: those of the organisation, and for the owner of the installation those of
    /// the installation.
    pub(crate) async fn visible_certificates(
        &self,
        organisation: AccountId,
        is_owner: bool,
    ) -> Result<Vec<StoredCertificate>, ApiError> {
        let mut all = self.store.certificates().await?;
        all.retain(|row| row.organisation.map_or(is_owner, |owner| owner == organisation));
        Ok(all)
    }

    /// A visible certificate: by its id, or by one of its names.
    pub(crate) async fn find_certificate(
        &self,
        organisation: AccountId,
        is_owner: bool,
        id_or_name: &str,
    ) -> Result<StoredCertificate, ApiError> {
        let all = self.visible_certificates(organisation, is_owner).await?;
        let id = id_or_name.parse::<CertificateId>().ok();
        let name = id_or_name.parse::<DomainName>().ok();
        let covers = |row: &StoredCertificate| {
            name.as_ref().is_some_and(|name| row.names.iter().any(|one| one == name || one.covers(name.as_str())))
        };
        let exact =
            |row: &StoredCertificate| Some(row.id) == id || name.as_ref().is_some_and(|name| row.names.contains(name));
        let found = all.iter().find(|row| exact(row)).or_else(|| all.iter().find(|row| covers(row)));
        found.cloned().ok_or_else(|| ApiError::not_found("certificate"))
    }

    /// The certificate that is served, or is to be served, for a domain of an organisation.
    pub(crate) async fn certificate_for(
        &self,
        organisation: AccountId,
        name: &DomainName,
    ) -> Result<Option<Certificate>, ApiError> {
        let all = self.store.certificates_of(Some(organisation)).await?;
        let found = all.iter().find(|row| row.names.contains(name));
        Ok(found.map(|row| self.certificate_to_api(row)))
    }

    /// Imports a certificate for verified domains of the organisation, or for names of the installation.
    pub(crate) async fn import_certificate(
        &self,
        organisation: AccountId,
        is_owner: bool,
        import: ImportCertificate,
    ) -> Result<StoredCertificate, ApiError> {
        let ImportCertificate { chain, key } = import;
        if chain.len() > MAX_CHAIN_BYTES || key.expose().len() > MAX_KEY_BYTES {
            let detail = format!("a chain has at most {MAX_CHAIN_BYTES} bytes, and a key at most {MAX_KEY_BYTES}");
            return Err(ApiError::field("chain", detail));
        }
        let wrong = |detail: &str| ApiError::field("chain", detail.to_owned());
        let chain = checked_chain(&chain).map_err(|error| ApiError::field("chain", error))?;
        let summary = CertificateSummary::from_pem(&chain)
            .ok_or_else(|| wrong("expected a certificate in PEM, followed by those of its authorities"))?;
        let names = summary.names.iter().map(|name| name.parse::<DomainName>());
        let names = names.collect::<Result<Vec<_>, _>>().map_err(|error| ApiError::field("chain", error))?;
        if names.is_empty() {
            return Err(wrong("the first certificate has no DNS name: begin with the one that the names are in"));
        }
        let now = self.clock.now().unix_seconds;
        let (not_before, not_after) = (summary.not_before.unix_timestamp(), summary.not_after.unix_timestamp());
        if not_after <= now {
            return Err(wrong("the validity of the certificate is over"));
        }
        if not_before > now {
            return Err(wrong("the validity of the certificate has not begun"));
        }
        let texts = names.iter().map(ToString::to_string).collect();
        PublicCertificate::new(texts, &chain, key.expose(), not_after)
            .map_err(|error| ApiError::field("key", error))?;
        self.limits.create(organisation, self.clock.now().monotonic)?;
        let organisation = self.owner_of_names(organisation, is_owner, &names).await?;
        let known = self.store.certificates_of(organisation).await?;
        let imported = known.iter().filter(|row| row.source == CertificateSource::Imported);
        if imported.clone().count() >= MAX_IMPORTED_CERTIFICATES
            && !imported.clone().any(|row| row.names.first() == names.first())
        {
            let detail = format!("an organisation has at most {MAX_IMPORTED_CERTIFICATES} imported certificates");
            return Err(ApiError::new(StatusCode::CONFLICT, "limit-reached", detail));
        }
        let sealed_key = self.seal_certificate_key(&key)?;
        let new = WantedCertificate { id: CertificateId::from_random(random::bytes()?), organisation, names };
        let issued = IssuedChain { chain, sealed_key, not_before, not_after };
        let id = self.store.import_certificate(&new, &issued, now).await?;
        let stored = self.store.certificate(id).await?.ok_or_else(|| ApiError::not_found("certificate"))?;
        self.publish_certificate(&stored);
        audit::set_target(&stored.names[0]);
        tracing::info!(name = %stored.names[0], "certificate imported");
        Ok(stored)
    }

    /// The owner of these names: the organisation, if all are covered by its verified domains; `None` for names of the
    /// installation.
    async fn owner_of_names(
        &self,
        organisation: AccountId,
        is_owner: bool,
        names: &[DomainName],
    ) -> Result<Option<AccountId>, ApiError> {
        let own = &self.config.domain;
        let is_own = |name: &DomainName| {
            name.base() == own || name.base().strip_suffix(own.as_str()).is_some_and(|label| label.ends_with('.'))
        };
        if is_owner && names.iter().all(is_own) {
            return Ok(None);
        }
        if let Some(own) = names.iter().find(|name| is_own(name) || name.covers(own)) {
            let detail = format!(
                "{own} belongs to this installation, whose owner imports certificates for its names alone, without \
                 others"
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "domain-taken", detail));
        }
        for name in names {
            if self.is_verified(organisation, name).await? {
                continue;
            }
            let wildcard = sallyport_model::wildcard_over(name.as_str()).and_then(|name| name.parse().ok());
            let is_covered = match wildcard {
                Some(wildcard) => self.is_verified(organisation, &wildcard).await?,
                None => false,
            };
            if !is_covered {
                let detail = format!("{name} is not a verified domain of this organisation");
                return Err(ApiError::new(StatusCode::CONFLICT, "domain-not-verified", detail));
            }
            // A wildcard gives no name that another organisation has proved.
            if self.store.verified_domain(name).await?.is_some() {
                let detail = format!("{name} is a domain of another organisation");
                return Err(ApiError::new(StatusCode::CONFLICT, "domain-taken", detail));
            }
        }
        Ok(Some(organisation))
    }

    /// Removes imported certificates of the organisation for names that are no longer its verified domains.
    pub(crate) async fn drop_foreign_imports(&self, organisation: AccountId) -> Result<(), ApiError> {
        for row in self.store.certificates_of(Some(organisation)).await? {
            if row.source != CertificateSource::Imported {
                continue;
            }
            match self.owner_of_names(organisation, false, &row.names).await {
                Ok(_) => {}
                Err(error) if error.status() == StatusCode::CONFLICT => {
                    self.store.delete_certificate(row.id).await?;
                    self.certificates.remove(row.id);
                    tracing::info!(name = %row.names[0], "imported certificate removed with its domain");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes what other organisations have for a name that this one has proved: imported certificates, and a zone.
    pub(crate) async fn drop_names_of_others(
        &self,
        organisation: AccountId,
        name: &DomainName,
    ) -> Result<(), ApiError> {
        for id in self.store.delete_imports_of_others(organisation, name).await? {
            self.certificates.remove(id);
            tracing::info!(%name, "imported certificate removed: another organisation has proved the name");
        }
        if let Some(zone) = self.store.zone(name.as_str()).await?
            && zone.organisation.is_some_and(|owner| owner != organisation)
        {
            self.delete_zone(&zone).await?;
        }
        Ok(())
    }

    async fn is_verified(&self, organisation: AccountId, name: &DomainName) -> Result<bool, ApiError> {
        let found = self.store.domain(organisation, name).await?;
        Ok(found.is_some_and(|found| found.verified_at.is_some()))
    }

    /// Makes the order of a certificate due now.
    pub(crate) async fn renew_certificate(&self, stored: &StoredCertificate) -> Result<StoredCertificate, ApiError> {
        if stored.source == CertificateSource::Imported {
            let detail = "this certificate was imported: import its successor";
            return Err(ApiError::new(StatusCode::CONFLICT, "certificate-imported", detail));
        }
        if self.config.acme.is_none() {
            let detail = "this server orders no certificates: start it with --acme EMAIL";
            return Err(ApiError::new(StatusCode::CONFLICT, "no-acme", detail));
        }
        let names = stored.names.iter().map(ToString::to_string).collect();
        let mut schedule: Schedule = serde_json::from_str(&stored.schedule).unwrap_or_else(|_| Schedule::new(names));
        schedule.request();
        let text = serde_json::to_string(&schedule).map_err(ApiError::internal)?;
        self.store.hasten_certificate(stored.id, &text, self.clock.now().unix_seconds).await?;
        audit::set_target(&stored.names[0]);
        self.names_changed.notify_one();
        self.store.certificate(stored.id).await?.ok_or_else(|| ApiError::not_found("certificate"))
    }

    /// Removes an imported certificate. Edges know it when this returns.
    pub(crate) async fn delete_certificate(&self, stored: &StoredCertificate) -> Result<(), ApiError> {
        if stored.source != CertificateSource::Imported {
            let detail = "the server orders this certificate by itself: remove the domain or the socket instead";
            return Err(ApiError::new(StatusCode::CONFLICT, "certificate-ordered", detail));
        }
        self.store.delete_certificate(stored.id).await?;
        self.certificates.remove(stored.id);
        audit::set_target(&stored.names[0]);
        self.names_changed.notify_one();
        Ok(())
    }

    /// Seals a private key in PEM for the store and for edges.
    pub(crate) fn seal_certificate_key(&self, key: &Secret) -> Result<String, ApiError> {
        let sealed = self.sealer.seal(Purpose::CertificateKey, &key.expose(), random::bytes()?);
        sealed.ok_or_else(|| ApiError::internal("a key could not be sealed"))
    }

    /// Publishes the certificate to edges, if it is issued.
    pub(crate) fn publish_certificate(&self, stored: &StoredCertificate) {
        if let Some(served) = served(stored.clone()) {
            self.certificates.put(served);
        }
    }

    /// Reads the certificates and challenges from the store again: another control may have changed them.
    pub(crate) async fn reload_certificates(&self) -> Result<(), ApiError> {
        let stored = self.store.certificates().await?;
        let known: std::collections::HashSet<_> = stored.iter().map(|row| row.id).collect();
        for gone in self.certificates.all().iter().filter(|served| !known.contains(&served.id)) {
            self.certificates.remove(gone.id);
        }
        for row in &stored {
            let is_new = served(row.clone())
                .is_some_and(|served| self.certificates.get(row.id).is_none_or(|known| *known != served));
            if is_new {
                self.publish_certificate(row);
            }
        }
        let challenges = self.store.challenges(self.clock.now().unix_seconds).await?;
        let known: std::collections::HashSet<_> = challenges.iter().map(|challenge| challenge.id).collect();
        for gone in self.challenges.all().iter().filter(|challenge| !known.contains(&challenge.id)) {
            self.challenges.remove(gone.id);
        }
        challenges.into_iter().filter(|one| !self.challenges.has(one.id)).for_each(|one| self.challenges.put(one));
        Ok(())
    }
}
