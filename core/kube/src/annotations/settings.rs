//! The settings of a socket that options come to.

use std::collections::BTreeMap;

use sallyport_model::{
    AccessRules, Capacity, EndpointGroup, HeaderChanges, HeaderRules, HealthCheck, IdentitySettings, Limits,
    PathPrefix, PathRoute, Probe, ProxyProtocol, RegionName, SettingError, SocketSettings, SocketType, TlsMode,
};

use super::{HealthProbe, Options};

/// Why options do not fit together: the option, what is wrong, and what to do.
pub(crate) struct Misfit {
    /// The name of the option.
    pub(crate) option: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) remedy: String,
}

fn misfit(option: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Misfit {
    Misfit { option, message: message.into(), remedy: remedy.into() }
}

/// The bound in the API's type; values beyond are refused by the check.
fn small(limit: Option<Option<u64>>) -> Option<u32> {
    limit.flatten().map(|bound| u32::try_from(bound).unwrap_or(u32::MAX))
}

impl Options {
    /// The settings of a socket of this type.
    ///
    /// # Errors
    /// Options that do not fit together, or not to the type.
    pub(crate) fn settings(&self, socket_type: SocketType) -> Result<SocketSettings, Misfit> {
        let headers = HeaderRules {
            request: HeaderChanges {
                set: self.request_header.clone().unwrap_or_default(),
                remove: self.remove_request_header.clone().unwrap_or_default(),
            },
            response: HeaderChanges {
                set: self.response_header.clone().unwrap_or_default(),
                remove: self.remove_response_header.clone().unwrap_or_default(),
            },
        };
        let settings = SocketSettings {
            proxy_protocol: self.proxy_protocol.unwrap_or(ProxyProtocol::Off),
            tls_mode: if self.passthrough == Some(true) { TlsMode::Passthrough } else { TlsMode::Terminate },
            alpn: self.alpn.clone().unwrap_or_default(),
            health_check: self.health()?,
            affinity: self.affinity.unwrap_or_default(),
            limits: Limits {
                max_connections: small(self.max_connections),
                requests_per_second: small(self.requests_per_second),
                bytes_per_second: self.bytes_per_second.flatten(),
                queue: small(self.queue),
            },
            access: AccessRules {
                allow: self.allow.clone().unwrap_or_default(),
                deny: self.deny.clone().unwrap_or_default(),
            },
            amplification_guard: self.amplification_guard.unwrap_or(true),
            identity: self.identity()?,
            regions: self.regions(),
            host_header: self.host_header.clone().flatten(),
            headers,
        };
        match settings.check(socket_type) {
            Ok(()) => Ok(settings),
            Err(error) => Err(misfit(self.of_error(&error), error.to_string(), remedy_of(&error, socket_type))),
        }
    }

    fn health(&self) -> Result<Option<HealthCheck>, Misfit> {
        let numbers = [
            ("health-interval", self.health_interval),
            ("health-timeout", self.health_timeout),
            ("healthy-threshold", self.healthy_threshold),
            ("unhealthy-threshold", self.unhealthy_threshold),
        ];
        let given = numbers.iter().find(|(_, value)| value.is_some());
        let probe = match (&self.health_check, given) {
            (None | Some(HealthProbe::Off), Some((option, _))) => {
                let message = "there is no health check whose times and thresholds could be set";
                return Err(misfit(option, message, "add sallyport.dev/health-check: tcp, or http:/PATH"));
            }
            (None | Some(HealthProbe::Off), None) => return Ok(None),
            (Some(HealthProbe::Tcp), _) => Probe::Tcp,
            (Some(HealthProbe::Http { path, status }), _) => {
                let (status_from, status_to) = status.unwrap_or((200, 399));
                Probe::Http { path: path.clone(), status_from, status_to }
            }
        };
        let interval_seconds = self.health_interval.unwrap_or(5);
        Ok(Some(HealthCheck {
            probe,
            interval_seconds,
            timeout_seconds: self.health_timeout.unwrap_or_else(|| interval_seconds.min(2)),
            healthy_threshold: self.healthy_threshold.unwrap_or(2),
            unhealthy_threshold: self.unhealthy_threshold.unwrap_or(3),
        }))
    }

    fn identity(&self) -> Result<Option<IdentitySettings>, Misfit> {
        if self.cloudauth != Some(true) {
            let details = [
                ("allowed-email-addresses", self.allowed_email_addresses.is_some()),
                ("allowed-email-domains", self.allowed_email_domains.is_some()),
                ("identity-provider", self.identity_provider.is_some()),
                ("session-minutes", self.session_minutes.is_some()),
            ];
            return match details.into_iter().find(|(_, is_given)| *is_given) {
                None => Ok(None),
                Some((option, _)) => {
                    let message = "the socket requires no login, so options of logins have no effect";
                    Err(misfit(option, message, "add sallyport.dev/cloudauth: \"true\""))
                }
            };
        }
        let usual = IdentitySettings::default();
        Ok(Some(IdentitySettings {
            email_addresses: self.allowed_email_addresses.clone().unwrap_or_default(),
            email_domains: self.allowed_email_domains.clone().unwrap_or_default(),
            providers: self.identity_provider.clone().unwrap_or_default(),
            session_minutes: self.session_minutes.unwrap_or(usual.session_minutes),
            ..usual
        }))
    }

    fn regions(&self) -> BTreeMap<RegionName, EndpointGroup> {
        let mut regions: BTreeMap<RegionName, EndpointGroup> = BTreeMap::new();
        for (region, dial) in self.dial.iter().flatten() {
            regions.entry(region.clone()).or_default().dial = *dial;
        }
        for (region, rps) in self.region_max_rps.iter().flatten() {
            regions.entry(region.clone()).or_default().capacity.max_rps = Some(*rps);
        }
        for (region, most) in self.region_max_connections.iter().flatten() {
            regions.entry(region.clone()).or_default().capacity.max_connections = Some(*most);
        }
        for (region, shared) in self.region_shared_capacity.iter().flatten() {
            regions.entry(region.clone()).or_default().capacity.shared = Some(shared.clone());
        }
        regions.retain(|_, group| *group != EndpointGroup::default());
        regions
    }

    /// What the pods can carry together.
    ///
    /// # Errors
    /// A shared capacity has no limit.
    pub(crate) fn capacity(&self) -> Result<Option<Capacity>, Misfit> {
        let capacity = Capacity {
            max_rps: self.max_rps.flatten(),
            max_connections: self.origin_max_connections.flatten(),
            shared: self.shared_capacity.clone().flatten(),
        };
        if let Err(error) = capacity.check() {
            let remedy = "add sallyport.dev/max-rps or sallyport.dev/origin-max-connections";
            return Err(misfit("shared-capacity", error.to_string(), remedy));
        }
        Ok(Some(capacity).filter(|capacity| !capacity.is_empty()))
    }

    /// The paths of the service.
    ///
    /// # Errors
    /// Two replacements, or a type without paths.
    pub(crate) fn route(&self, socket_type: SocketType) -> Result<PathRoute, Misfit> {
        let is_stripped = self.strip_path == Some(true);
        if is_stripped && self.rewrite_path.is_some() {
            let message = "the path can be stripped or replaced, and not both";
            return Err(misfit("strip-path", message, "remove sallyport.dev/strip-path or sallyport.dev/rewrite-path"));
        }
        let rewrite = if is_stripped { Some(PathPrefix::root()) } else { self.rewrite_path.clone() };
        let route = PathRoute { prefix: self.path.clone().unwrap_or_default(), rewrite };
        if !(socket_type.is_http() || route.is_plain()) {
            let message = format!("paths are for http and https sockets, and this is a {socket_type} socket");
            return Err(misfit("path", message, "remove it and what goes with it, or set sallyport.dev/type: http"));
        }
        Ok(route)
    }

    /// The option that an error is about.
    fn of_error(&self, error: &SettingError) -> &'static str {
        match error {
            SettingError::OutOfRange { what, .. } => match *what {
                "the most connections" => "max-connections",
                "requests per second" => "requests-per-second",
                "bytes per second" => "bytes-per-second",
                "the queue" => "queue",
                "the time between health checks" => "health-interval",
                "the healthy threshold" => "healthy-threshold",
                "the unhealthy threshold" => "unhealthy-threshold",
                "the length of a login" | "the idle time of a login" => "session-minutes",
                _ => "health-check",
            },
            SettingError::TimeoutOverInterval { .. } => "health-timeout",
            SettingError::Path => "health-check",
            SettingError::QueueWithoutBound => "queue",
            SettingError::Alpn => "alpn",
            SettingError::NotForType { setting, .. } => match *setting {
                "the PROXY protocol" => "proxy-protocol",
                "passthrough" => "passthrough",
                "ALPN" => "alpn",
                "affinity by cookie" => "affinity",
                "going without the amplification guard" => "no-amplification-guard",
                "a host header" => "host-header",
                "identity" => "cloudauth",
                "a health check" => "health-check",
                _ => self.of_headers(),
            },
            SettingError::TooManyRules => "allow",
            SettingError::TooManyIdentities => "allowed-email-addresses",
            SettingError::TooManyRegions | SettingError::Dial { .. } => "dial",
            SettingError::Capacity { .. } => "region-shared-capacity",
            SettingError::IdentityBehindPassthrough => "passthrough",
            SettingError::Headers(_) => self.of_headers(),
        }
    }

    fn of_headers(&self) -> &'static str {
        let given = [
            ("request-header", self.request_header.is_some()),
            ("remove-request-header", self.remove_request_header.is_some()),
            ("response-header", self.response_header.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map_or("remove-response-header", |(option, _)| option)
    }
}

fn remedy_of(error: &SettingError, socket_type: SocketType) -> String {
    match error {
        SettingError::NotForType { types, .. } => {
            format!("remove the annotation, or set sallyport.dev/type to one of {types}: it is {socket_type}")
        }
        SettingError::IdentityBehindPassthrough => {
            "remove sallyport.dev/passthrough or sallyport.dev/cloudauth".to_owned()
        }
        SettingError::QueueWithoutBound => {
            "add sallyport.dev/max-connections or sallyport.dev/requests-per-second".to_owned()
        }
        SettingError::TooManyRules | SettingError::TooManyIdentities => "put the list into a policy".to_owned(),
        _ => "change the annotation to a value within these bounds".to_owned(),
    }
}
