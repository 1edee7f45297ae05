//! Domains, certificates and zones.

use http::Method;
use sallyport_api::{
    Certificate, CreateDomain, CreateZone, CreateZoneRecord, Domain, ImportCertificate, Zone, ZoneRecord,
};
use uuid::Uuid;

use crate::{ApiClient, ClientError, client::path_segment};

impl ApiClient {
    /// The organisation's domains.
    ///
    /// # Errors
    /// There is no login.
    pub async fn domains(&self) -> Result<Vec<Domain>, ClientError> {
        self.list("/v1/domains").await
    }

    /// A domain of the organisation.
    ///
    /// # Errors
    /// The organisation has no such domain.
    pub async fn domain(&self, name: &str) -> Result<Domain, ClientError> {
        self.get(&format!("/v1/domains/{}", path_segment(name))).await
    }

    /// Adds a domain to the organisation.
    ///
    /// # Errors
    /// The name is not accepted, or another organisation has it.
    pub async fn create_domain(&self, domain: &CreateDomain) -> Result<Domain, ClientError> {
        self.send(Method::POST, "/v1/domains", domain).await
    }

    /// Has the records of a domain looked up now.
    ///
    /// # Errors
    /// The organisation has no such domain, or another organisation has it verified.
    pub async fn check_domain(&self, name: &str) -> Result<Domain, ClientError> {
        self.send(Method::POST, &format!("/v1/domains/{}/check", path_segment(name)), &()).await
    }

    /// Removes a domain.
    ///
    /// # Errors
    /// The organisation has no such domain.
    pub async fn delete_domain(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/domains/{}", path_segment(name))).await
    }

    /// The certificates that the login may see.
    ///
    /// # Errors
    /// There is no login.
    pub async fn certificates(&self) -> Result<Vec<Certificate>, ClientError> {
        self.list("/v1/certificates").await
    }

    /// A certificate, by its id or one of its names.
    ///
    /// # Errors
    /// There is no such certificate.
    pub async fn certificate(&self, name: &str) -> Result<Certificate, ClientError> {
        self.get(&format!("/v1/certificates/{}", path_segment(name))).await
    }

    /// Has a certificate ordered again.
    ///
    /// # Errors
    /// There is no such certificate, or the server does not order it.
    pub async fn renew_certificate(&self, name: &str) -> Result<Certificate, ClientError> {
        self.send(Method::POST, &format!("/v1/certificates/{}/renew", path_segment(name)), &()).await
    }

    /// Imports a certificate.
    ///
    /// # Errors
    /// The certificate or its key is not accepted, or its names are not the organisation's.
    pub async fn import_certificate(&self, import: &ImportCertificate) -> Result<Certificate, ClientError> {
        self.send(Method::POST, "/v1/certificates", import).await
    }

    /// Removes an imported certificate.
    ///
    /// # Errors
    /// There is no such certificate, or the server has ordered it.
    pub async fn delete_certificate(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/certificates/{}", path_segment(name))).await
    }

    /// The zones that the login may see.
    ///
    /// # Errors
    /// There is no login.
    pub async fn zones(&self) -> Result<Vec<Zone>, ClientError> {
        self.list("/v1/zones").await
    }

    /// A zone, by its name.
    ///
    /// # Errors
    /// There is no such zone.
    pub async fn zone(&self, name: &str) -> Result<Zone, ClientError> {
        self.get(&format!("/v1/zones/{}", path_segment(name))).await
    }

    /// Makes a zone.
    ///
    /// # Errors
    /// The name is not a verified domain, or the server has no name server.
    pub async fn create_zone(&self, zone: &CreateZone) -> Result<Zone, ClientError> {
        self.send(Method::POST, "/v1/zones", zone).await
    }

    /// Begins or continues the rollover of a zone's key.
    ///
    /// # Errors
    /// There is no such zone, or it is not the time.
    pub async fn roll_zone_key(&self, name: &str, of_records: bool) -> Result<Zone, ClientError> {
        let key = if of_records { "?key=zsk" } else { "" };
        self.send(Method::POST, &format!("/v1/zones/{}/rollover{key}", path_segment(name)), &()).await
    }

    /// Removes a zone.
    ///
    /// # Errors
    /// There is no such zone, or it is the installation's.
    pub async fn delete_zone(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/zones/{}", path_segment(name))).await
    }

    /// The records of a zone.
    ///
    /// # Errors
    /// There is no such zone.
    pub async fn zone_records(&self, name: &str) -> Result<Vec<ZoneRecord>, ClientError> {
        self.list(&format!("/v1/zones/{}/records", path_segment(name))).await
    }

    /// Adds a record to a zone.
    ///
    /// # Errors
    /// There is no such zone, or the record is not accepted.
    pub async fn create_zone_record(&self, name: &str, record: &CreateZoneRecord) -> Result<ZoneRecord, ClientError> {
        self.send(Method::POST, &format!("/v1/zones/{}/records", path_segment(name)), record).await
    }

    /// Removes a record of a zone.
    ///
    /// # Errors
    /// There is no such record.
    pub async fn delete_zone_record(&self, name: &str, id: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/zones/{}/records/{id}", path_segment(name))).await
    }
}
