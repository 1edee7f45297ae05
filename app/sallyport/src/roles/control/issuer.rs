//! Certificates for edges, from the two authorities of an installation.

use std::time::Duration;

use sallyport_api::EdgeCertificates;
use sallyport_control::{EdgeIssuer, IssueFailure};
use sallyport_model::{EdgeId, EdgeName};
use sallyport_net::LocalCa;
use sallyport_pki::{ClientRequest, Issued, certificate_pem};
use time::OffsetDateTime;

/// Signs certificates of edges.
pub(super) struct Issuer {
    /// The authority that clients trust.
    pub(super) site: LocalCa,
    /// The authority that machines trust.
    pub(super) nodes: LocalCa,
    pub(super) domain: String,
    pub(super) lifetime: Duration,
}

fn serial() -> Result<[u8; 16], IssueFailure> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(|error| IssueFailure::Sign(error.to_string()))?;
    Ok(serial)
}

fn pem(issued: &Issued) -> String {
    issued.chain.iter().map(|der| certificate_pem(der)).collect()
}

impl EdgeIssuer for Issuer {
    fn issue(&self, request: &str, id: EdgeId, name: &EdgeName) -> Result<EdgeCertificates, IssueFailure> {
        let request = ClientRequest::from_pem(request).map_err(|error| IssueFailure::Request(error.to_string()))?;
        let failed = |error: sallyport_pki::IssueError| IssueFailure::Sign(error.to_string());
        let lifetime =
            time::Duration::try_from(self.lifetime).map_err(|error| IssueFailure::Sign(error.to_string()))?;
        let now = OffsetDateTime::now_utc();
        let (id, nodes) = (id.to_string(), self.nodes.authority());
        let node = nodes.issue_edge(&request, (&id, name.as_str()), now, serial()?, lifetime).map_err(failed)?;
        let names = [self.domain.clone(), format!("*.{}", self.domain)];
        let site = self.site.authority();
        let server = site.issue_server(&names, request.public_key(), now, serial()?, lifetime).map_err(failed)?;
        let not_after = node.not_after.min(server.not_after).unix_timestamp();
        Ok(EdgeCertificates { node: pem(&node), server: pem(&server), not_after })
    }
}
