//! What the leader writes into the cluster: conditions, the status of load balancers, finalizers and Events. Uses
//! `serve`.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{ObjectReference, Service},
    networking::v1::Ingress,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::events::{Event as KubeEvent, EventType as KubeEventType, Recorder, Reporter},
};
use sallyport_kube_model::{
    FINALIZER, Kind, ObjectKey, ObjectMeta,
    report::{Condition, Event, EventType, LoadBalancerStatus},
};
use serde_json::{Value, json};

use crate::{
    FIELD_MANAGER,
    serve::{ClusterWrite, Health, Outcome},
};

/// How often a change is tried that conflicts with one of others.
const MAX_ATTEMPTS: u32 = 5;

/// Writes into the cluster; clones share the connection.
#[derive(Clone)]
pub(crate) struct ClusterWriter {
    client: Client,
    recorder: Recorder,
    health: Arc<Health>,
}

/// What of a status is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatusUpdate {
    /// The condition; `None` for kinds without conditions, and to remove ours.
    pub(crate) condition: Option<Condition>,
    /// The public names; `None` leaves them to others.
    pub(crate) load_balancer: Option<LoadBalancerStatus>,
}

impl ClusterWriter {
    /// A writer for this replica.
    pub(crate) fn new(client: Client, replica: &str, health: Arc<Health>) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(replica.to_owned()) };
        Self { recorder: Recorder::new(client.clone(), reporter), client, health }
    }

    /// Replaces what this program has in the status of an object. An object that is gone is no error.
    ///
    /// # Errors
    /// The API server refuses or cannot be reached.
    pub(crate) async fn status(&self, object: &ObjectKey, update: &StatusUpdate) -> Result<(), kube::Error> {
        let mut status = serde_json::Map::new();
        if let Some(condition) = &update.condition {
            status.insert("conditions".to_owned(), json!([condition_value(condition)]));
        }
        if let Some(load_balancer) = &update.load_balancer {
            let ingress: Vec<Value> = load_balancer
                .iter()
                .map(|one| {
                    let ports: Vec<Value> = one
                        .ports
                        .iter()
                        .map(|port| {
                            let mut value = json!({ "port": port.port, "protocol": port.protocol.as_str() });
                            if let Some(error) = &port.error {
                                value["error"] = json!(error);
                            }
                            value
                        })
                        .collect();
                    match ports.as_slice() {
                        [] => json!({ "hostname": one.hostname }),
                        ports => json!({ "hostname": one.hostname, "ports": ports }),
                    }
                })
                .collect();
            status.insert("loadBalancer".to_owned(), json!({ "ingress": ingress }));
        }
        let (version, ObjectKey { kind, namespace, name }) = (api_version(object.kind), object);
        let applied =
            json!({ "apiVersion": version, "kind": kind.title(), "metadata": { "name": name }, "status": status });
        // Applying without a field removes the field, if it is this program's.
        let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(&applied));
        let written = match kind {
            Kind::Service => {
                let api = Api::<Service>::namespaced(self.client.clone(), namespace);
                api.patch_status(name, &parameters, &patch).await.map(drop)
            }
            Kind::Ingress => {
                let api = Api::<Ingress>::namespaced(self.client.clone(), namespace);
                api.patch_status(name, &parameters, &patch).await.map(drop)
            }
        };
        self.settle(ClusterWrite::Status, written)
    }

    /// Adds this program's finalizer, or removes it. The version of the object goes along, so that a change of others
    /// is never lost; then the next round tries again.
    ///
    /// # Errors
    /// The API server refuses or cannot be reached.
    pub(crate) async fn finalizer(&self, kind: Kind, meta: &ObjectMeta, is_wanted: bool) -> Result<(), kube::Error> {
        let mut finalizers: Vec<&str> =
            meta.finalizers.iter().map(String::as_str).filter(|one| *one != FINALIZER).collect();
        if is_wanted {
            finalizers.push(FINALIZER);
        }
        let patch = json!({ "metadata": { "resourceVersion": meta.resource_version, "finalizers": finalizers } });
        let (parameters, patch) = (
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() },
            Patch::Merge(&patch),
        );
        let written = match kind {
            Kind::Service => {
                let api = Api::<Service>::namespaced(self.client.clone(), &meta.namespace);
                api.patch(&meta.name, &parameters, &patch).await.map(drop)
            }
            Kind::Ingress => {
                let api = Api::<Ingress>::namespaced(self.client.clone(), &meta.namespace);
                api.patch(&meta.name, &parameters, &patch).await.map(drop)
            }
        };
        self.settle(ClusterWrite::Finalizer, written)
    }

    /// Removes this program's finalizer from an object as it is now; a change of others in between is read again.
    ///
    /// # Errors
    /// The API server refuses or cannot be reached.
    pub(crate) async fn remove_finalizer(&self, object: &ObjectKey) -> Result<(), kube::Error> {
        let ObjectKey { kind, namespace, name } = object;
        let mut attempt = 1;
        loop {
            let meta = match kind {
                Kind::Service => {
                    let api = Api::<Service>::namespaced(self.client.clone(), namespace);
                    api.get_opt(name).await?.map(|found| found.metadata)
                }
                Kind::Ingress => {
                    let api = Api::<Ingress>::namespaced(self.client.clone(), namespace);
                    api.get_opt(name).await?.map(|found| found.metadata)
                }
            };
            let Some(meta) = meta else { return Ok(()) };
            let meta = ObjectMeta {
                namespace: namespace.clone(),
                name: name.clone(),
                resource_version: meta.resource_version.unwrap_or_default(),
                finalizers: meta.finalizers.unwrap_or_default(),
                ..ObjectMeta::default()
            };
            match self.finalizer(*kind, &meta, false).await {
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < MAX_ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Publishes an Event about an object.
    ///
    /// # Errors
    /// The API server refuses or cannot be reached.
    pub(crate) async fn event(&self, event: &Event, uid: &str) -> Result<(), kube::Error> {
        let ObjectKey { kind, namespace, name } = &event.object;
        let reference = ObjectReference {
            api_version: Some(api_version(*kind).to_owned()),
            kind: Some(kind.title().to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let published = KubeEvent {
            type_: match event.event_type {
                EventType::Normal => KubeEventType::Normal,
                EventType::Warning => KubeEventType::Warning,
            },
            reason: event.reason.clone(),
            note: Some(event.message.clone()),
            action: "Expose".to_owned(),
            secondary: None,
        };
        let written = self.recorder.publish(&published, &reference).await;
        self.settle(ClusterWrite::Event, written)
    }

    /// Counts a write. An object that is gone needs none.
    fn settle(&self, write: ClusterWrite, written: Result<(), kube::Error>) -> Result<(), kube::Error> {
        let written = match written {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written,
        };
        let outcome = match &written {
            Ok(()) => Outcome::Ok,
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => Outcome::Refused,
            Err(_) => Outcome::Failed,
        };
        self.health.metrics.wrote(write, outcome);
        written
    }
}

fn api_version(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "v1",
        Kind::Ingress => "networking.k8s.io/v1",
    }
}

fn condition_value(condition: &Condition) -> Value {
    let at = k8s_openapi::jiff::Timestamp::from_second(condition.last_transition).unwrap_or_default();
    let mut value = json!({
        "type": condition.condition_type,
        "status": condition.status.as_str(),
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": at.to_string(),
    });
    if let Some(generation) = condition.observed_generation {
        value["observedGeneration"] = json!(generation);
    }
    value
}
