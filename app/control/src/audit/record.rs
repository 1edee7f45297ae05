//! Audit events that handlers record themselves: logins, certificates, and changes by persons and ssh clients.

use std::net::SocketAddr;

use sallyport_api::{AuditAdmin, AuditCertificate, AuditEvent, AuditLogin};
use sallyport_audit::AuditSink as _;
use sallyport_model::{Account, AccountId, LoginSession, Socket};
use sallyport_store::guest_account;
use time::OffsetDateTime;

use super::trail::{MAX_TARGET_CHARS, client, request_id};
use crate::state::{App, forwards::SshClient};

impl App {
    pub(super) fn record(
        &self,
        organisation: Option<AccountId>,
        event: impl FnOnce(OffsetDateTime, Option<AccountId>) -> AuditEvent,
    ) {
        if let Some(audit) = &self.config.audit {
            audit.record(event(OffsetDateTime::now_utc(), organisation));
        }
    }

    /// Records a login, with the reason if it was refused.
    pub(crate) fn audit_login(&self, organisation: AccountId, identity: &str, provider: &str, refused: Option<&str>) {
        let login = AuditLogin {
            identity: identity.to_owned(),
            provider: provider.to_owned(),
            outcome: if refused.is_some() { "refused" } else { "done" }.to_owned(),
            reason: refused.map(str::to_owned),
            client: client(),
        };
        self.record(Some(organisation), |at, organisation| AuditEvent::login(at, organisation, login));
    }

    /// Records that a person logged out.
    pub(crate) fn audit_logout(&self, session: &LoginSession) {
        let person = &session.person;
        self.audit_end(session.organisation, person.email.as_str(), person.provider.as_str());
    }

    /// Records that the provider ended a person's login, with the reason.
    pub(crate) fn audit_ended_by_provider(&self, session: &LoginSession, reason: &str) {
        let person = &session.person;
        let login = AuditLogin {
            identity: person.email.as_str().to_owned(),
            provider: person.provider.as_str().to_owned(),
            outcome: "ended".to_owned(),
            reason: Some(reason.to_owned()),
            client: client(),
        };
        self.record(Some(session.organisation), |at, organisation| AuditEvent::login(at, organisation, login));
    }

    /// Records that the owner of an account logged out of the API.
    pub(crate) fn audit_account_logout(&self, organisation: AccountId, email: &str) {
        self.audit_end(organisation, email, "account");
    }

    fn audit_end(&self, organisation: AccountId, identity: &str, provider: &str) {
        let (identity, provider) = (identity.to_owned(), provider.to_owned());
        let login = AuditLogin { identity, provider, outcome: "ended".to_owned(), reason: None, client: client() };
        self.record(Some(organisation), |at, organisation| AuditEvent::login(at, organisation, login));
    }

    /// Records a person's decision or request other than a login, with the reason if it was refused.
    pub(crate) fn audit_decision(&self, session: &LoginSession, action: &str, target: &str, refused: Option<&str>) {
        let admin = AuditAdmin {
            actor: format!("person:{}", session.person.email),
            account: None,
            action: action.to_owned(),
            target: Some(target.chars().take(MAX_TARGET_CHARS).collect()),
            changed: Vec::new(),
            outcome: if refused.is_some() { "refused" } else { "done" }.to_owned(),
            reason: refused.map(str::to_owned),
            request_id: request_id(),
            client: client(),
        };
        self.record(Some(session.organisation), |at, organisation| AuditEvent::admin(at, organisation, admin));
    }

    /// Records a certificate that was issued.
    pub(crate) fn audit_certificate(&self, organisation: AccountId, certificate: AuditCertificate) {
        let certificate = AuditCertificate { client: client(), ..certificate };
        self.record(Some(organisation), |at, organisation| AuditEvent::certificate(at, organisation, certificate));
    }

    /// Records that a person changed a password or codes. Persons are no accounts, even with the same address.
    pub(crate) fn audit_person(&self, organisation: AccountId, email: &str, action: &str) {
        let admin = AuditAdmin {
            actor: format!("person:{email}"),
            account: None,
            action: action.to_owned(),
            target: Some(email.to_owned()),
            changed: Vec::new(),
            outcome: "done".to_owned(),
            reason: None,
            request_id: request_id(),
            client: client(),
        };
        self.record(Some(organisation), |at, organisation| AuditEvent::admin(at, organisation, admin));
    }

    /// Records that the owner of an account changed a password or codes without a login; `reason` names the proof.
    pub(crate) fn audit_account(&self, account: &Account, action: &str, reason: Option<&str>) {
        let admin = AuditAdmin {
            actor: account.email.as_str().to_owned(),
            account: Some(account.id),
            action: action.to_owned(),
            target: Some(account.email.as_str().to_owned()),
            changed: Vec::new(),
            outcome: "done".to_owned(),
            reason: reason.map(str::to_owned),
            request_id: request_id(),
            client: client(),
        };
        self.record(Some(account.id), |at, organisation| AuditEvent::admin(at, organisation, admin));
    }

    /// Records a change by an ssh client.
    pub(crate) fn audit_ssh(&self, ssh: &SshClient, socket: &Socket, action: &str, target: &str) {
        let actor = match &ssh.key {
            Some(key) => format!("ssh:{key}"),
            None if ssh.account == guest_account() => "ssh:guest".to_owned(),
            None => format!("ssh:{}", ssh.account),
        };
        let admin = AuditAdmin {
            actor,
            account: (ssh.account != guest_account()).then_some(ssh.account),
            action: action.to_owned(),
            target: Some(target.to_owned()),
            changed: Vec::new(),
            outcome: "done".to_owned(),
            reason: None,
            request_id: String::new(),
            // The client's port is not known here.
            client: Some(SocketAddr::new(ssh.address, 0)),
        };
        self.record(Some(socket.account), |at, organisation| AuditEvent::admin(at, organisation, admin));
    }
}
