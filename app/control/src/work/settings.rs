//! From the fields of a request to the settings of a socket. Pure.

use sallyport_api::{CreateSocket, HealthCheck, UpdateSocket};
use sallyport_model::{AccessRules, Affinity, Limits, ProxyProtocol, SocketSettings, SocketType, TlsMode};
use sallyport_policy::{AccessList, Rule};

use crate::{AddressDatabases, problem::ApiError};

/// What is to be set: absent stays as it is, `Some(None)` is the default again.
pub(super) struct SettingsWish {
    proxy_protocol: Option<Option<ProxyProtocol>>,
    tls_mode: Option<Option<TlsMode>>,
    alpn: Option<Option<Vec<String>>>,
    health_check: Option<Option<HealthCheck>>,
    affinity: Option<Option<Affinity>>,
    limits: Option<Option<Limits>>,
    access: Option<Option<AccessRules>>,
    amplification_guard: Option<Option<bool>>,
}

impl SettingsWish {
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
        }
    }

    /// The settings with the wish fulfilled, not yet checked.
    pub(super) fn apply(&self, now: &SocketSettings) -> Result<SocketSettings, ApiError> {
        fn or<T: Clone + Default>(wish: &Option<Option<T>>, now: &T) -> T {
            wish.as_ref().map_or_else(|| now.clone(), |wish| wish.clone().unwrap_or_default())
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
            amplification_guard: self.amplification_guard.map_or(now.amplification_guard, |wish| wish.unwrap_or(true)),
        })
    }
}

/// The settings, when a socket of this type can have them; access rules in the form that all are stored in.
pub(super) fn checked(
    mut settings: SocketSettings,
    socket_type: SocketType,
    databases: AddressDatabases,
) -> Result<SocketSettings, ApiError> {
    // Each part by itself, so that the refusal names the field.
    let plain = SocketSettings::default;
    let s = &settings;
    let parts = [
        ("proxy_protocol", SocketSettings { proxy_protocol: s.proxy_protocol, ..plain() }),
        ("tls_mode", SocketSettings { tls_mode: s.tls_mode, ..plain() }),
        ("alpn", SocketSettings { alpn: s.alpn.clone(), ..plain() }),
        ("health_check", SocketSettings { health_check: s.health_check.clone(), ..plain() }),
        ("affinity", SocketSettings { affinity: s.affinity, ..plain() }),
        ("limits", SocketSettings { limits: s.limits, ..plain() }),
        ("access", SocketSettings { access: s.access.clone(), ..plain() }),
        ("amplification_guard", SocketSettings { amplification_guard: s.amplification_guard, ..plain() }),
    ];
    for (field, part) in parts {
        part.check(socket_type).map_err(|error| ApiError::field(field, error))?;
    }
    settings.check(socket_type).map_err(|error| ApiError::field("", error))?;
    if settings.tls_mode == TlsMode::Passthrough && !settings.alpn.is_empty() {
        let detail = "with passthrough the origin offers the protocols: leave alpn out";
        return Err(ApiError::field("alpn", detail));
    }
    settings.access = checked_access(&settings.access, databases)?;
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
            let detail = format!("this server cannot tell the {what} of a client: it was started without {option}");
            return Err(ApiError::field("access", detail));
        }
    }
    let texts = |rules: &[Rule]| rules.iter().map(ToString::to_string).collect();
    Ok(AccessRules { allow: texts(&list.allow), deny: texts(&list.deny) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_need_a_database_nobody_has_are_refused() {
        let with = |rule: &str| SocketSettings {
            access: AccessRules { allow: vec![rule.to_owned()], deny: Vec::new() },
            ..SocketSettings::default()
        };
        let both = AddressDatabases { country: true, asn: true };
        for rule in ["country:CH", "asn:64500"] {
            assert!(checked(with(rule), SocketType::Tcp, both).is_ok(), "{rule}");
            assert!(checked(with(rule), SocketType::Tcp, AddressDatabases::default()).is_err(), "{rule}");
        }
        assert!(checked(with("192.0.2.0/24"), SocketType::Udp, AddressDatabases::default()).is_ok());
    }

    #[test]
    fn a_key_for_another_purpose_is_another_key() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = crate::Secrets::open_or_create(dir.path()).unwrap();
        assert_ne!(secrets.derived("affinity"), secrets.derived("other"));
        let again = crate::Secrets::open_or_create(dir.path()).unwrap();
        assert_eq!(secrets.derived("affinity"), again.derived("affinity"));
    }
}
