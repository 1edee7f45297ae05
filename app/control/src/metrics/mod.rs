//! The counters of control.

mod catchment;
mod steering;

use axum::extract::MatchedPath;
use http::{Method, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sallyport_store::CertificateCounts;

use self::{catchment::CatchmentMetrics, steering::SteeringMetrics};

/// A kind of request. Routes are patterns, which bounds their number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoginLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// The outcome of a login.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoginOutcome {
    Ok,
    Failed,
    Limited,
    /// The password was right, and a code was missing.
    CodeNeeded,
}

impl LoginOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Limited => "limited",
            Self::CodeNeeded => "code-needed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    change: &'static str,
}

/// A change of an account's password, codes or setup.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AccountChange {
    Password,
    PasswordByCode,
    Forgotten,
    Reset,
    TotpOn,
    TotpOff,
    RecoveryCode,
    RecoveryCodes,
    Invitation,
    Setup,
}

impl AccountChange {
    fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::PasswordByCode => "password-by-code",
            Self::Forgotten => "forgotten",
            Self::Reset => "reset",
            Self::TotpOn => "totp-on",
            Self::TotpOff => "totp-off",
            Self::RecoveryCode => "recovery-code-used",
            Self::RecoveryCodes => "recovery-codes-renewed",
            Self::Invitation => "invitation-used",
            Self::Setup => "setup",
        }
    }
}

/// The counters of control. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) steering: SteeringMetrics,
    pub(crate) catchment: CatchmentMetrics,
    requests: Family<RequestLabels, Counter>,
    logins: Family<LoginLabels, Counter>,
    person_logins: Family<LoginLabels, Counter>,
    person_links: Family<LoginLabels, Counter>,
    account_changes: Family<ChangeLabels, Counter>,
    account_messages: Family<LoginLabels, Counter>,
    account_sessions_ended: Counter,
    provider_checks: Family<LoginLabels, Counter>,
    provider_logouts: Family<LoginLabels, Counter>,
    certificate_orders: Family<LoginLabels, Counter>,
    certificates: Family<StateLabels, Gauge>,
    /// Certificates whose order has failed, or that have expired.
    troubled_certificates: Gauge,
    pub(crate) sockets: Gauge,
    pub(crate) accounts: Gauge,
    pub(crate) networks: Gauge,
    /// Machines of networks.
    pub(crate) machines: Gauge,
}

impl Metrics {
    /// Counts an order at an ACME server that has ended.
    pub(crate) fn certificate_order(&self, outcome: &'static str) {
        self.certificate_orders.get_or_create(&LoginLabels { outcome }).inc();
    }

    /// Sets how many certificates are in each state.
    pub(crate) fn set_certificates(&self, counts: CertificateCounts) {
        let CertificateCounts { waiting, expired, failing, valid, problems } = counts;
        for (state, count) in [("waiting", waiting), ("expired", expired), ("failing", failing), ("valid", valid)] {
            self.certificates.get_or_create(&StateLabels { state }).set(count);
        }
        self.troubled_certificates.set(problems.max(expired));
    }

    /// How many certificates have an order that failed, or have expired.
    pub(crate) fn troubled_certificates(&self) -> i64 {
        self.troubled_certificates.get()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.steering.register(registry);
        self.catchment.register(registry);
        registry.register(
            "sallyport_api_requests",
            "Requests to the API by route, method and status",
            self.requests.clone(),
        );
        registry.register(
            "sallyport_certificate_orders",
            "Orders at ACME servers by outcome",
            self.certificate_orders.clone(),
        );
        registry.register("sallyport_certificates", "Certificates for names by state", self.certificates.clone());
        registry.register("sallyport_logins", "Logins with a password by outcome", self.logins.clone());
        registry.register(
            "sallyport_person_logins",
            "Passwords and codes of persons by outcome",
            self.person_logins.clone(),
        );
        registry.register("sallyport_person_links", "Links for persons by outcome", self.person_links.clone());
        registry.register(
            "sallyport_account_changes",
            "Passwords, codes and setups of accounts by what changed",
            self.account_changes.clone(),
        );
        registry.register(
            "sallyport_account_messages",
            "Messages to owners of accounts by outcome",
            self.account_messages.clone(),
        );
        registry.register(
            "sallyport_account_sessions_ended",
            "Sessions that their accounts ended one by one or all but one",
            self.account_sessions_ended.clone(),
        );
        registry.register(
            "sallyport_provider_checks",
            "Checks at identity providers whether a login is still valid, by outcome",
            self.provider_checks.clone(),
        );
        registry.register(
            "sallyport_provider_logouts",
            "Logouts that identity providers reported, by outcome",
            self.provider_logouts.clone(),
        );
        registry.register("sallyport_sockets", "Sockets", self.sockets.clone());
        registry.register("sallyport_accounts", "Accounts", self.accounts.clone());
        registry.register("sallyport_networks", "Networks of machines", self.networks.clone());
        registry.register("sallyport_network_machines", "Machines of networks", self.machines.clone());
    }

    pub(crate) fn login(&self, outcome: LoginOutcome) {
        self.logins.get_or_create(&LoginLabels { outcome: outcome.as_str() }).inc();
    }

    pub(crate) fn person_login(&self, outcome: LoginOutcome) {
        self.person_logins.get_or_create(&LoginLabels { outcome: outcome.as_str() }).inc();
    }

    /// Counts a link: sent, failed, or without a hook.
    pub(crate) fn person_link(&self, outcome: &'static str) {
        self.person_links.get_or_create(&LoginLabels { outcome }).inc();
    }

    pub(crate) fn account_change(&self, change: AccountChange) {
        self.account_changes.get_or_create(&ChangeLabels { change: change.as_str() }).inc();
    }

    /// Counts a message to the owner of an account: sent, failed, or without a hook.
    pub(crate) fn account_message(&self, outcome: &'static str) {
        self.account_messages.get_or_create(&LoginLabels { outcome }).inc();
    }

    pub(crate) fn account_sessions_ended(&self, count: u64) {
        self.account_sessions_ended.inc_by(count);
    }

    /// Counts a check at a provider whether a login is still valid.
    pub(crate) fn provider_check(&self, outcome: &'static str) {
        self.provider_checks.get_or_create(&LoginLabels { outcome }).inc();
    }

    /// Counts a logout that a provider reported.
    pub(crate) fn provider_logout(&self, outcome: &'static str) {
        self.provider_logouts.get_or_create(&LoginLabels { outcome }).inc();
    }

    pub(crate) fn request(&self, route: Option<&MatchedPath>, method: &Method, status: StatusCode) {
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let route = route.map_or("none", MatchedPath::as_str).to_owned();
        self.requests.get_or_create(&RequestLabels { route, method, status: status.as_u16() }).inc();
    }
}
