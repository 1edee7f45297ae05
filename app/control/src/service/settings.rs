//! From the fields of a request to the settings of a socket. Pure.

use std::collections::BTreeMap;

use sallyport_api::{CreateSocket, HealthCheck, UpdateSocket};
use sallyport_model::{
    AccessRules, Affinity, EndpointGroup, HeaderRules, HostHeader, IdentitySettings, Limits, ProxyProtocol, RegionName,
    SocketSettings, SocketType, TlsMode,
};
use sallyport_policy::{AccessList, Rule};

use crate::{config::AddressDatabases, problem::ApiError};

/// Changes of settings: an absent field stays as it is, `Some(None)` is the default again.
pub(super) struct SettingsChange {
    proxy_protocol: Option<Option<ProxyProtocol>>,
    tls_mode: Option<Option<TlsMode>>,
    alpn: Option<Option<Vec<String>>>,
    health_check: Option<Option<HealthCheck>>,
    affinity: Option<Option<Affinity>>,
    limits: Option<Option<Limits>>,
    access: Option<Option<AccessRules>>,
    amplification_guard: Option<Option<bool>>,
    identity: Option<Option<IdentitySettings>>,
    regions: Option<Option<BTreeMap<RegionName, EndpointGroup>>>,
    host_header: Option<Option<HostHeader>>,
    headers: Option<Option<HeaderRules>>,
}

impl SettingsChange {
    pub(super) fn of_new(create: &CreateSocket) -> Self {
        Self {
            proxy_protocol: Some(create.proxy_protocol),
            tls_mode: Some(create.tls_mode),
            alpn: Some(create.alpn.clone()),
            health_check: Some(create.health_check.clone()),
            affinity: Some(create.affinity),
            limits: Some(create.limits),
            access: Some(create.access.clone()),
            amplification_guard: Some(create.amplification_guard),
            identity: Some(create.identity.clone()),
            regions: Some(create.regions.clone()),
            host_header: Some(create.host_header.clone()),
            headers: Some(create.headers.clone()),
        }
    }

    pub(super) fn of_change(update: &UpdateSocket) -> Self {
        Self {
            proxy_protocol: update.proxy_protocol,
            tls_mode: update.tls_mode,
            alpn: update.alpn.clone(),
            health_check: update.health_check.clone(),
            affinity: update.affinity,
            limits: update.limits,
            access: update.access.clone(),
            amplification_guard: update.amplification_guard,
            identity: update.identity.clone(),
            regions: update.regions.clone(),
            host_header: update.host_header.clone(),
            headers: update.headers.clone(),
        }
    }

    /// The same change, with this identity setting.
    pub(super) fn with_identity(self, identity: Option<IdentitySettings>) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Whether the change sets regional dials.
    pub(super) fn has_dials(&self) -> bool {
        matches!(&self.regions, Some(Some(regions)) if !regions.is_empty())
    }

    /// Whether the change turns the amplification guard off.
    pub(super) fn is_without_guard(&self) -> bool {
        self.amplification_guard == Some(Some(false))
    }

    /// Applies the change, without checks.
    fn apply(&self, now: &SocketSettings) -> Result<SocketSettings, ApiError> {
        fn or<T: Clone + Default>(change: &Option<Option<T>>, now: &T) -> T {
            change.as_ref().map_or_else(|| now.clone(), |value| value.clone().unwrap_or_default())
        }
        let health_check = match &self.health_check {
            None => now.health_check.clone(),
            Some(None) => None,
            Some(Some(check)) => {
                let check = sallyport_model::HealthCheck::try_from(check.clone());
                Some(check.map_err(|says| ApiError::field("health_check", says))?)
            }
        };
        Ok(SocketSettings {
            proxy_protocol: or(&self.proxy_protocol, &now.proxy_protocol),
            tls_mode: or(&self.tls_mode, &now.tls_mode),
            alpn: or(&self.alpn, &now.alpn),
            health_check,
            affinity: or(&self.affinity, &now.affinity),
            limits: or(&self.limits, &now.limits),
            access: or(&self.access, &now.access),
            amplification_guard: self
                .amplification_guard
                .map_or(now.amplification_guard, |value| value.unwrap_or(true)),
            identity: self.identity.clone().unwrap_or_else(|| now.identity.clone()),
            regions: or(&self.regions, &now.regions),
            host_header: self.host_header.clone().unwrap_or_else(|| now.host_header.clone()),
            headers: or(&self.headers, &now.headers),
        })
    }

    /// Each setting alone among defaults, so that an error names its field, and whether the change sets it.
    fn parts(&self, settings: &SocketSettings) -> [(&'static str, SocketSettings, bool); 12] {
        let plain = SocketSettings::default;
        // All fields are named, so that a new one cannot be forgotten.
        let SocketSettings {
            proxy_protocol,
            tls_mode,
            alpn,
            health_check,
            affinity,
            limits,
            access,
            amplification_guard,
            identity,
            regions,
            host_header,
            headers,
        } = settings.clone();
        [
            ("proxy_protocol", SocketSettings { proxy_protocol, ..plain() }, self.proxy_protocol.is_some()),
            ("tls_mode", SocketSettings { tls_mode, ..plain() }, self.tls_mode.is_some()),
            ("alpn", SocketSettings { alpn, ..plain() }, self.alpn.is_some()),
            ("health_check", SocketSettings { health_check, ..plain() }, self.health_check.is_some()),
            ("affinity", SocketSettings { affinity, ..plain() }, self.affinity.is_some()),
            ("limits", SocketSettings { limits, ..plain() }, self.limits.is_some()),
            ("access", SocketSettings { access, ..plain() }, self.access.is_some()),
            (
                "amplification_guard",
                SocketSettings { amplification_guard, ..plain() },
                self.amplification_guard.is_some(),
            ),
            ("identity", SocketSettings { identity, ..plain() }, self.identity.is_some()),
            ("regions", SocketSettings { regions, ..plain() }, self.regions.is_some()),
            ("host_header", SocketSettings { host_header, ..plain() }, self.host_header.is_some()),
            ("headers", SocketSettings { headers, ..plain() }, self.headers.is_some()),
        ]
    }
}

/// Applies the change, and checks the result for a socket of this type. Access rules are stored in one form. `before`
/// has the present settings and type. A present setting that is invalid by a newer rule stays, unless the change sets
/// it: other changes must remain possible.
pub(super) fn settled(
    change: &SettingsChange,
    before: (&SocketSettings, SocketType),
    socket_type: SocketType,
    databases: AddressDatabases,
) -> Result<SocketSettings, ApiError> {
    let mut settings = change.apply(before.0)?;
    for ((field, part, is_set), (_, stood, _)) in change.parts(&settings).into_iter().zip(change.parts(before.0)) {
        if let Err(error) = part.check(socket_type)
            && (is_set || stood.check(before.1).is_ok())
        {
            return Err(ApiError::field(field, error));
        }
    }
    let is_set = change.tls_mode.is_some() || change.alpn.is_some();
    if is_set && settings.tls_mode == TlsMode::Passthrough && !settings.alpn.is_empty() {
        let detail = "with passthrough the origin offers the protocols: leave alpn out";
        return Err(ApiError::field("alpn", detail));
    }
    let is_set = change.tls_mode.is_some() || change.identity.is_some();
    if is_set && settings.tls_mode == TlsMode::Passthrough && settings.identity.is_some() {
        return Err(ApiError::field("identity", sallyport_model::SettingError::IdentityBehindPassthrough));
    }
    if change.access.is_some() {
        settings.access = checked_access(&settings.access, databases)?;
    }
    Ok(settings)
}

fn checked_access(access: &AccessRules, databases: AddressDatabases) -> Result<AccessRules, ApiError> {
    let rules = |side: &str, texts: &[String]| {
        let rule = |(n, text): (usize, &String)| {
            text.parse::<Rule>().map_err(|error| ApiError::field(&format!("access.{side}[{n}]"), error))
        };
        texts.iter().enumerate().map(rule).collect::<Result<Vec<_>, _>>()
    };
    let list = AccessList { allow: rules("allow", &access.allow)?, deny: rules("deny", &access.deny)? };
    list.compile().map_err(|error| ApiError::field("access", error))?;
    for (is_missing, what, option) in [
        (list.needs_country() && !databases.country, "country", "--geoip-country"),
        (list.needs_asn() && !databases.asn, "asn", "--geoip-asn"),
    ] {
        if is_missing {
            let detail =
                format!("this server cannot determine the {what} of a client: it was started without {option}");
            let is_it = |texts: &[String]| texts.iter().any(|text| text.to_ascii_lowercase().starts_with(what));
            let field = if is_it(&access.allow) { "access.allow" } else { "access.deny" };
            return Err(ApiError::field(field, detail));
        }
    }
    let texts = |rules: &[Rule]| rules.iter().map(ToString::to_string).collect();
    Ok(AccessRules { allow: texts(&list.allow), deny: texts(&list.deny) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_need_an_absent_database_are_refused() {
        let make = |rule: &str, socket_type, databases| {
            let access = AccessRules { allow: vec![rule.to_owned()], deny: Vec::new() };
            let update = UpdateSocket { access: Some(Some(access)), ..UpdateSocket::default() };
            let change = SettingsChange::of_change(&update);
            settled(&change, (&SocketSettings::default(), socket_type), socket_type, databases)
        };
        let both = AddressDatabases { country: true, asn: true };
        for rule in ["country:CH", "asn:64500"] {
            assert!(make(rule, SocketType::Tcp, both).is_ok(), "{rule}");
            assert!(make(rule, SocketType::Tcp, AddressDatabases::default()).is_err(), "{rule}");
        }
        assert!(make("192.0.2.0/24", SocketType::Udp, AddressDatabases::default()).is_ok());
    }

    #[test]
    fn a_key_for_another_purpose_is_another_key() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = crate::security::secrets::Secrets::open_or_create(dir.path()).unwrap();
        assert_ne!(secrets.derived("affinity"), secrets.derived("other"));
        let again = crate::security::secrets::Secrets::open_or_create(dir.path()).unwrap();
        assert_eq!(secrets.derived("affinity"), again.derived("affinity"));
    }
}
