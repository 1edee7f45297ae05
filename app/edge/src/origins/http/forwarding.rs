//! The changes that a socket's owner makes to forwarded requests: origins by path, path and host rewriting, header
//! edits. A socket without changes has no [`Forwarding`].

use std::collections::HashMap;

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    uri::{Authority, PathAndQuery},
};
use sallyport_http::{
    RequestHost,
    path::{self, AmbiguousPath, PathTable},
    rewrite::{self, HeaderEdits, Names},
};
use sallyport_model::{HeaderChanges, HostHeader, OriginRef, PathPrefix, SocketRoute, SocketType};
use sha2::{Digest, Sha256};

use crate::origins::transport::OriginTransport;

const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// The host for an origin with an unknown address: behind a stock ssh client.
const UNKNOWN_ORIGIN: &str = "localhost";

/// The origins of a socket that serve the same paths. Selection, balancing, affinity and waiting stay within one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Group(u64);

impl Group {
    /// The origins that serve every path.
    pub(crate) const ROOT: Self = Self(0);

    /// The group of this number.
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The group's number, which is the same at all edges.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    fn of(prefix: &PathPrefix) -> Self {
        if prefix.is_root() {
            return Self::ROOT;
        }
        let digest: [u8; 32] = Sha256::digest(prefix.as_str().as_bytes()).into();
        let (first, _) = digest.split_at(8);
        Self(first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)).max(1))
    }
}

/// The changes of one socket.
#[derive(Debug)]
pub(crate) struct Forwarding {
    paths: Option<Paths>,
    host: Option<HostHeader>,
    request: HeaderEdits,
    response: HeaderEdits,
}

/// Which origins serve which paths.
#[derive(Debug)]
struct Paths {
    table: PathTable,
    /// By the index of the prefix in the table.
    groups: Vec<Group>,
    served: HashMap<OriginRef, Served>,
}

/// The paths that one origin serves.
#[derive(Debug)]
struct Served {
    group: Group,
    prefix: PathPrefix,
    /// What replaces the prefix in the request to the origin, if anything.
    replacement: Option<PathPrefix>,
}

impl Forwarding {
    /// The changes of this route; `None` if there are none.
    pub(crate) fn of(route: &SocketRoute) -> Option<Box<Self>> {
        if !route.socket_type.is_http() {
            return None;
        }
        let paths = Paths::of(route);
        let settings = &route.settings;
        let (request, response) = (edits(&settings.headers.request), edits(&settings.headers.response));
        let changes_nothing =
            paths.is_none() && settings.host_header.is_none() && request.is_empty() && response.is_empty();
        let host = settings.host_header.clone();
        (!changes_nothing).then(|| Box::new(Self { paths, host, request, response }))
    }

    /// The group of origins that serves a path.
    ///
    /// # Errors
    /// No service serves the path, or the path is ambiguous.
    pub(crate) fn group(&self, path: &str) -> Result<Group, ForwardingError> {
        let Some(paths) = &self.paths else { return Ok(Group::ROOT) };
        let place = paths.table.find(path)?.ok_or(ForwardingError::NoPath)?;
        paths.groups.get(place).copied().ok_or(ForwardingError::NoPath)
    }

    /// The group of an origin; `None` if the route does not have the origin.
    pub(crate) fn group_of(&self, origin: OriginRef) -> Option<Group> {
        match &self.paths {
            Some(paths) => paths.served.get(&origin).map(|served| served.group),
            None => Some(Group::ROOT),
        }
    }

    /// Edits the header fields of a request, before the fields that only the edge sets.
    pub(crate) fn edit_request(&self, headers: &mut HeaderMap) {
        self.request.apply(headers);
    }

    /// The target for this origin. Sets `X-Forwarded-Prefix` if the prefix is replaced.
    ///
    /// # Errors
    /// The path is ambiguous.
    pub(crate) fn target(
        &self,
        origin: OriginRef,
        original: &Uri,
        headers: &mut HeaderMap,
    ) -> Result<Uri, ForwardingError> {
        // An earlier attempt may have set the prefix of another origin.
        headers.remove(X_FORWARDED_PREFIX);
        let served = self.paths.as_ref().and_then(|paths| paths.served.get(&origin));
        let Some((served, replacement)) = served.and_then(|served| Some((served, served.replacement.as_ref()?))) else {
            return Ok(original.clone());
        };
        let target = original.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let target = path::replace_prefix(&target, served.prefix.segments().count(), replacement.as_str())?;
        if !served.prefix.is_root()
            && let Ok(prefix) = HeaderValue::from_str(served.prefix.as_str())
        {
            headers.insert(X_FORWARDED_PREFIX, prefix);
        }
        let mut parts = original.clone().into_parts();
        parts.path_and_query = Some(target);
        Ok(Uri::from_parts(parts).unwrap_or_else(|_| original.clone()))
    }

    /// The host for an origin; `None` for the public name.
    pub(crate) fn origin_host(&self, transport: &OriginTransport, socket_type: SocketType) -> Option<String> {
        self.host.as_ref().map(|host| origin_host(host, transport, socket_type))
    }

    /// Edits the header fields of an origin's response.
    pub(crate) fn edit_response(
        &self,
        headers: &mut HeaderMap,
        origin: OriginRef,
        origin_host: Option<&str>,
        host: &RequestHost,
    ) {
        if let Some(origin_host) = origin_host {
            let served = self.paths.as_ref().and_then(|paths| paths.served.get(&origin));
            let prefixes = served.map_or(("/", "/"), |served| {
                (served.prefix.as_str(), served.replacement.as_ref().unwrap_or(&served.prefix).as_str())
            });
            rewrite::public_location(headers, &Names { origin_host, public: ("https", host.as_str()), prefixes });
        }
        self.response.apply(headers);
    }
}

impl Paths {
    fn of(route: &SocketRoute) -> Option<Self> {
        if route.paths().all(|(_, path)| path.is_plain()) {
            return None;
        }
        let mut prefixes: Vec<&PathPrefix> = route.paths().map(|(_, path)| &path.prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let served = route.paths().map(|(origin, path)| {
            let (prefix, replacement) = (path.prefix.clone(), path.replacement().cloned());
            (origin, Served { group: Group::of(&prefix), prefix, replacement })
        });
        Some(Self {
            table: PathTable::new(prefixes.iter().map(|prefix| prefix.as_str())),
            groups: prefixes.iter().map(|prefix| Group::of(prefix)).collect(),
            served: served.collect(),
        })
    }
}

/// Why a path leads to no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardingError {
    /// No service of the socket serves the path.
    NoPath,
    /// Programs read the path in different ways, which lead to different services of the socket.
    AmbiguousPath,
}

impl From<AmbiguousPath> for ForwardingError {
    fn from(_: AmbiguousPath) -> Self {
        Self::AmbiguousPath
    }
}

/// The host for the origin behind this transport.
pub(crate) fn origin_host(host: &HostHeader, transport: &OriginTransport, socket_type: SocketType) -> String {
    match host {
        HostHeader::Named(host) => host.clone(),
        HostHeader::Origin => {
            let address = transport.dialed().unwrap_or_else(|| UNKNOWN_ORIGIN.to_owned());
            let usual = if socket_type == SocketType::Https { ":443" } else { ":80" };
            address.strip_suffix(usual).map(str::to_owned).unwrap_or(address)
        }
    }
}

fn edits(changes: &HeaderChanges) -> HeaderEdits {
    let set = changes.set.iter().map(|field| (field.name.as_str(), field.value.as_str()));
    HeaderEdits::new(changes.remove.iter().map(String::as_str), set)
}

/// The target with another host in its authority, for HTTP/2.
pub(crate) fn with_host(target: Uri, host: &str) -> Uri {
    let Ok(authority) = host.parse::<Authority>() else { return target };
    let mut parts = target.clone().into_parts();
    parts.authority = Some(authority);
    Uri::from_parts(parts).unwrap_or(target)
}
