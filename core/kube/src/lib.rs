//! The rules of Kubernetes: what of a cluster gets a public name, and what is to be done for that.
//!
//! Sources ([`ServiceSource`], [`IngressSource`], [`EndpointSlice`]) become desired sockets ([`expose`]), the sockets
//! that are there become a [`Plan`], and what happened becomes conditions and Events ([`report`]). Nothing here speaks
//! with an API server or with the API: time is an argument, and the program does what the plan says.

mod annotations;
mod endpoints;
mod expose;
mod labels;
mod lead;
mod plan;
pub mod report;
mod source;

pub use annotations::{
    ANNOTATION_PREFIX, ARTICLE_ANNOTATION, AnnotationError, Annotations, EXPOSE_ANNOTATION, HealthProbe,
    MAX_ANNOTATION_BYTES, MAX_ANNOTATIONS, OPTIONS, OptionKind, OptionRule, Options, Wish, annotations,
};
pub use endpoints::{MAX_POOL, Pool, PoolMember, pool};
pub use expose::{
    Exposure, Exposures, MAX_PORTS, Origin, OriginTls, Refusal, ServiceRef, Services, Settings, SocketSpec, Target,
    expose, settle,
};
pub use labels::{
    ClusterName, ClusterNameError, ExposureKey, LABEL_CLUSTER, LABEL_INSTALLATION, LABEL_KIND, LABEL_NAME,
    LABEL_NAMESPACE, LABEL_POLICIES, LABEL_PORT, LABEL_REPLICA,
};
pub use lead::{Election, LEASE_DURATION, LeaseRecord, LeaseStep, RENEW_DEADLINE, RENEW_EVERY};
pub use plan::{
    Action, Backoff, Blocked, Failure, Field, MAX_ACTIONS, Memory, OwnedSocket, Plan, SWEEP_AFTER, Seen, plan,
};
pub use source::{
    AddressType, CLASS, Endpoint, EndpointPort, EndpointSlice, FINALIZER, INGRESS_CONTROLLER, IngressBackend,
    IngressPath, IngressPort, IngressRule, IngressSource, IngressTls, IpFamily, Kind, ObjectKey, ObjectMeta, PathType,
    Protocol, ServicePort, ServiceSource, ServiceType, Source, TargetPort,
};
