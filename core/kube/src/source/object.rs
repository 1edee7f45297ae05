//! Names of objects, and what every object has.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// The kind of an object that may have sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A Service.
    Service,
    /// An Ingress.
    Ingress,
}

impl Kind {
    /// The kind in labels, in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Ingress => "ingress",
        }
    }

    /// The kind as Kubernetes writes it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Ingress => "Ingress",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "service" => Ok(Self::Service),
            "ingress" => Ok(Self::Ingress),
            _ => Err(()),
        }
    }
}

/// Which object: unique in its cluster at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.title(), self.namespace, self.name)
    }
}

/// What every object has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectMeta {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, which no later object of the same name has.
    pub uid: String,
    /// Its version, as opaque text.
    pub resource_version: String,
    /// The generation of its spec, where the kind has one.
    pub generation: Option<i64>,
    /// When it was created, in seconds since 1970 by the API server's clock.
    pub created: i64,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it has a deletion timestamp.
    pub is_deleting: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
}

impl ObjectMeta {
    /// Which object it is, with this kind.
    #[must_use]
    pub fn key(&self, kind: Kind) -> ObjectKey {
        ObjectKey { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Whether it has this program's finalizer.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|one| one == super::FINALIZER)
    }
}
