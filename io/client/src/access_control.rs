//! Access control: policies, persons, identity providers, logins, and the audit log.

use http::Method;
use sallyport_api::{
    AuditEvent, AuditQuery, AuditVerification, CreatePerson, CreatePolicy, CreateProvider, EndLoginSessions,
    EndedLoginSessions, InvitedPerson, LocalPerson, LoginSession, Page, Policy, PolicyPlace, PolicyTest, Provider,
    ProviderFound, ResetPerson, TestPolicy, UpdatePerson, UpdatePolicy, UpdateProvider,
};
use sallyport_model::{LabelSelector, LoginSessionId, PersonEmail, ProviderName};
use time::OffsetDateTime;

use crate::{
    ApiClient, ClientError, PolicyRef,
    client::{query_value, with_labels},
};

impl ApiClient {
    /// All policies of the organisation.
    ///
    /// # Errors
    /// There is no login.
    pub async fn policies(&self) -> Result<Vec<Policy>, ClientError> {
        self.policies_with(&[]).await
    }

    /// The organisation's policies with these labels, oldest first.
    ///
    /// # Errors
    /// There is no login, or there are too many labels.
    pub async fn policies_with(&self, labels: &[LabelSelector]) -> Result<Vec<Policy>, ClientError> {
        self.list(&with_labels("/v1/policies", labels)).await
    }

    /// Creates a policy without attachments.
    ///
    /// # Errors
    /// The name is taken, or the rules cannot match any client.
    pub async fn create_policy(&self, policy: &CreatePolicy) -> Result<Policy, ClientError> {
        self.send(Method::POST, "/v1/policies", policy).await
    }

    /// One policy.
    ///
    /// # Errors
    /// The organisation has none with this id or name.
    pub async fn policy(&self, policy: &PolicyRef) -> Result<Policy, ClientError> {
        self.get(&format!("/v1/policies/{policy}")).await
    }

    /// Changes a policy.
    ///
    /// # Errors
    /// The organisation has none with this id or name, or a value is invalid.
    pub async fn update_policy(&self, policy: &PolicyRef, update: &UpdatePolicy) -> Result<Policy, ClientError> {
        self.send(Method::PATCH, &format!("/v1/policies/{policy}"), update).await
    }

    /// Deletes a policy without attachments.
    ///
    /// # Errors
    /// The organisation has none with this id or name, or it is attached.
    pub async fn delete_policy(&self, policy: &PolicyRef) -> Result<(), ClientError> {
        self.delete(&format!("/v1/policies/{policy}")).await
    }

    /// Attaches a policy.
    ///
    /// # Errors
    /// There is no such policy or socket, or a socket would deny every client afterwards.
    pub async fn attach_policy(&self, policy: &PolicyRef, place: &PolicyPlace) -> Result<Policy, ClientError> {
        self.send(Method::POST, &format!("/v1/policies/{policy}/attach"), place).await
    }

    /// Detaches a policy.
    ///
    /// # Errors
    /// There is no such policy or socket, or a socket would admit or deny every client afterwards.
    pub async fn detach_policy(&self, policy: &PolicyRef, place: &PolicyPlace) -> Result<Policy, ClientError> {
        self.send(Method::POST, &format!("/v1/policies/{policy}/detach"), place).await
    }

    /// Evaluates rules for a given request.
    ///
    /// # Errors
    /// There is no such policy or socket, or a value is invalid.
    pub async fn test_policy(&self, test: &TestPolicy) -> Result<PolicyTest, ClientError> {
        self.send(Method::POST, "/v1/policy-test", test).await
    }

    /// All persons of the account's provider of kind `local`.
    ///
    /// # Errors
    /// There is no login.
    pub async fn persons(&self) -> Result<Vec<LocalPerson>, ClientError> {
        self.list("/v1/persons").await
    }

    /// Adds a person.
    ///
    /// # Errors
    /// The address is taken, or there is no provider of kind `local`.
    pub async fn create_person(&self, person: &CreatePerson) -> Result<InvitedPerson, ClientError> {
        self.send(Method::POST, "/v1/persons", person).await
    }

    /// A person.
    ///
    /// # Errors
    /// The account has none with this address.
    pub async fn person(&self, email: &PersonEmail) -> Result<LocalPerson, ClientError> {
        self.get(&person_path(email)).await
    }

    /// Changes a person.
    ///
    /// # Errors
    /// The account has none with this address, or a value is invalid.
    pub async fn update_person(&self, email: &PersonEmail, update: &UpdatePerson) -> Result<LocalPerson, ClientError> {
        self.send(Method::PATCH, &person_path(email), update).await
    }

    /// Removes a person's password, and creates a link for setting another one.
    ///
    /// # Errors
    /// The account has none with this address.
    pub async fn reset_person(&self, email: &PersonEmail, reset: &ResetPerson) -> Result<InvitedPerson, ClientError> {
        self.send(Method::POST, &format!("{}/reset", person_path(email)), reset).await
    }

    /// Deletes a person.
    ///
    /// # Errors
    /// The account has none with this address.
    pub async fn delete_person(&self, email: &PersonEmail) -> Result<(), ClientError> {
        self.delete(&person_path(email)).await
    }

    /// All identity providers of the account.
    ///
    /// # Errors
    /// There is no login.
    pub async fn providers(&self) -> Result<Vec<Provider>, ClientError> {
        self.list("/v1/providers").await
    }

    /// Adds an identity provider to the account.
    ///
    /// # Errors
    /// The name is taken, or the provider cannot be used.
    pub async fn create_provider(&self, provider: &CreateProvider) -> Result<Provider, ClientError> {
        self.send(Method::POST, "/v1/providers", provider).await
    }

    /// An identity provider.
    ///
    /// # Errors
    /// The account has none with this name.
    pub async fn provider(&self, name: &ProviderName) -> Result<Provider, ClientError> {
        self.get(&format!("/v1/providers/{name}")).await
    }

    /// Changes an identity provider.
    ///
    /// # Errors
    /// The account has none with this name, or it cannot be used.
    pub async fn update_provider(&self, name: &ProviderName, update: &UpdateProvider) -> Result<Provider, ClientError> {
        self.send(Method::PATCH, &format!("/v1/providers/{name}"), update).await
    }

    /// Deletes an identity provider; its persons are logged out.
    ///
    /// # Errors
    /// The account has none with this name.
    pub async fn delete_provider(&self, name: &ProviderName, force: bool) -> Result<(), ClientError> {
        let forced = if force { "?force=true" } else { "" };
        self.delete(&format!("/v1/providers/{name}{forced}")).await
    }

    /// Tests an identity provider.
    ///
    /// # Errors
    /// The account has none with this name.
    pub async fn test_provider(&self, name: &ProviderName) -> Result<ProviderFound, ClientError> {
        self.send(Method::POST, &format!("/v1/providers/{name}/test"), &serde_json::json!({})).await
    }

    /// The persons who are logged in at the account's sockets.
    ///
    /// # Errors
    /// There is no login.
    pub async fn login_sessions(&self) -> Result<Vec<LoginSession>, ClientError> {
        self.list("/v1/login-sessions").await
    }

    /// Ends logins of persons.
    ///
    /// # Errors
    /// The request selects nothing.
    pub async fn end_login_sessions(&self, which: &EndLoginSessions) -> Result<EndedLoginSessions, ClientError> {
        self.send(Method::POST, "/v1/login-sessions/end", which).await
    }

    /// Ends one login of a person.
    ///
    /// # Errors
    /// The account has none with this id.
    pub async fn end_login_session(&self, id: LoginSessionId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/login-sessions/{id}")).await
    }

    /// A page of audit events.
    ///
    /// # Errors
    /// A value is invalid, or the token lacks permission.
    pub async fn audit_events(&self, query: &AuditQuery) -> Result<Page<AuditEvent>, ClientError> {
        let rfc3339 =
            |at: OffsetDateTime| at.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
        let parameters = [
            ("since", query.since.map(rfc3339)),
            ("until", query.until.map(rfc3339)),
            ("kind", query.kind.map(|kind| kind.as_str().to_owned())),
            ("identity", query.identity.clone()),
            ("socket", query.socket.clone()),
            ("verdict", query.verdict.clone()),
            ("order", query.order.map(|order| order.as_str().to_owned())),
            ("limit", query.limit.map(|limit| limit.to_string())),
            ("after", query.after.clone()),
            ("wait", query.wait.map(|wait| wait.to_string())),
        ];
        let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let text: Vec<_> = given.map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        self.get(&format!("/v1/audit?{}", text.join("&"))).await
    }

    /// Verifies the audit log.
    ///
    /// # Errors
    /// The token lacks permission, or the log cannot be read.
    pub async fn verify_audit(&self) -> Result<AuditVerification, ClientError> {
        self.get("/v1/audit/verify").await
    }
}

/// The path of a person.
fn person_path(email: &PersonEmail) -> String {
    format!("/v1/persons/{}", query_value(email.as_str()))
}
