//! From the fields of a request to the settings of a socket. Pure.

use sallyport_api::{CreateSocket, HealthCheck, UpdateSocket};
use sallyport_model::{AccessRules, Affinity, Limits, ProxyProtocol, SocketSettings, SocketType, TlsMode};
use sallyport_policy::{AccessList, Rule};

use crate::problem::ApiError;

/// What is to be set: absent stays as it is, `Some(None)` is the default again.
pub(super) struct SettingsWish {
    proxy_protocol: Option<Option<ProxyProtocol>>,
    tls_mode: Option<Option<TlsMode>>,
    alpn: Option<Option<Vec<String>>>,
    health_check: Option<Option<HealthCheck>>,
    affinity: Option<Option<Affinity>>,
    limits: Option<Option<Limits>>,
    access: Option<Option<AccessRules>>,
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
        })
    }
}

/// The settings, when a socket of this type can have them; access rules in the form that all are stored in.
pub(super) fn checked(mut settings: SocketSettings, socket_type: SocketType) -> Result<SocketSettings, ApiError> {
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
    ];
    for (field, part) in parts {
        part.check(socket_type).map_err(|error| ApiError::field(field, error))?;
    }
    settings.check(socket_type).map_err(|error| ApiError::field("", error))?;
    if settings.tls_mode == TlsMode::Passthrough && !settings.alpn.is_empty() {
        let detail = "with passthrough the origin offers the protocols: leave alpn out";
        return Err(ApiError::field("alpn", detail));
    }
    settings.access = checked_access(&settings.access)?;
    Ok(settings)
}

fn checked_access(access: &AccessRules) -> Result<AccessRules, ApiError> {
    let rules = |side: &str, texts: &[String]| {
        let rule = |(n, text): (usize, &String)| {
            text.parse::<Rule>().map_err(|error| ApiError::field(&format!("access.{side}[{n}]"), error))
        };
        texts.iter().enumerate().map(rule).collect::<Result<Vec<_>, _>>()
    };
    let list = AccessList { allow: rules("allow", &access.allow)?, deny: rules("deny", &access.deny)? };
    list.compile().map_err(|error| ApiError::field("access", error))?;
    let texts = |rules: &[Rule]| rules.iter().map(ToString::to_string).collect();
    Ok(AccessRules { allow: texts(&list.allow), deny: texts(&list.deny) })
}
