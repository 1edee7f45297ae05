//! Labels in the API that say which cluster and object a socket or tunnel is for.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{Kind, ObjectKey};

/// The cluster: nothing without this label of the own cluster is ever changed or deleted.
pub const LABEL_CLUSTER: &str = "sallyport.dev/cluster";
/// The uid of the cluster's `kube-system` namespace, which differs after etcd was lost and in another cluster.
pub const LABEL_INSTALLATION: &str = "sallyport.dev/installation";
/// The namespace of the object.
pub const LABEL_NAMESPACE: &str = "sallyport.dev/namespace";
/// The kind of the object: `service` or `ingress`.
pub const LABEL_KIND: &str = "sallyport.dev/kind";
/// The name of the object.
pub const LABEL_NAME: &str = "sallyport.dev/name";
/// The name or number of the port of a Service; the host of an Ingress, or `*`.
pub const LABEL_PORT: &str = "sallyport.dev/port";
/// The policies that the program attached to a socket, so that it detaches no other one.
pub const LABEL_POLICIES: &str = "sallyport.dev/policies";
/// The replica that holds a tunnel.
pub const LABEL_REPLICA: &str = "sallyport.dev/replica";

/// The most characters of the name of a cluster.
const MAX_CLUSTER_CHARS: usize = 63;

/// The name of a cluster, which bounds what its program may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterName(String);

/// The text is no name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a cluster: use 1 to {MAX_CLUSTER_CHARS} lower-case letters, digits and hyphens, with a letter \
     or a digit at both ends"
)]
pub struct ClusterNameError(pub String);

impl ClusterName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = ClusterNameError;

    fn from_str(text: &str) -> Result<Self, ClusterNameError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_good = (1..=MAX_CLUSTER_CHARS).contains(&text.len())
            && text.bytes().all(is_plain)
            && !text.starts_with('-')
            && !text.ends_with('-');
        is_good.then(|| Self(text.to_owned())).ok_or_else(|| ClusterNameError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one socket is for: a port of a Service, or a host of an Ingress.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExposureKey {
    /// The object.
    pub object: ObjectKey,
    /// The name or number of the port of a Service; the host of an Ingress, or `*`.
    pub port: String,
}

impl fmt::Display for ExposureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.object, self.port)
    }
}

impl ExposureKey {
    /// The labels of its socket.
    #[must_use]
    pub fn labels(&self, cluster: &ClusterName, installation: Option<&str>) -> BTreeMap<String, String> {
        let ObjectKey { kind, namespace, name } = &self.object;
        let mut labels: BTreeMap<_, _> = [
            (LABEL_CLUSTER, cluster.as_str()),
            (LABEL_KIND, kind.as_str()),
            (LABEL_NAMESPACE, namespace.as_str()),
            (LABEL_NAME, name.as_str()),
            (LABEL_PORT, self.port.as_str()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        if let Some(installation) = installation {
            labels.insert(LABEL_INSTALLATION.to_owned(), installation.to_owned());
        }
        labels
    }

    /// What a socket with these labels is for, if it is one of this cluster.
    #[must_use]
    pub fn of_labels(labels: &BTreeMap<String, String>, cluster: &ClusterName) -> Option<Self> {
        if labels.get(LABEL_CLUSTER).map(String::as_str) != Some(cluster.as_str()) {
            return None;
        }
        let get = |key| labels.get(key).cloned();
        let kind: Kind = labels.get(LABEL_KIND)?.parse().ok()?;
        let object = ObjectKey { kind, namespace: get(LABEL_NAMESPACE)?, name: get(LABEL_NAME)? };
        Some(Self { object, port: get(LABEL_PORT)? })
    }
}
