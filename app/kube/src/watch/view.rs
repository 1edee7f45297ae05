//! What the cluster asks for, as core/kube reads it from the mirror.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    sync::Arc,
};

use k8s_openapi::api::discovery::v1::EndpointSlice as KubeSlice;
use sallyport_kube_model::{Exposure, Exposures, ObjectKey, Settings, Source, Target, expose, pool, settle};

use super::{Mirror, convert};

/// The label of a slice with its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What the cluster asks for at one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The settings that it was read with.
    pub(crate) settings: Settings,
    /// Every Service and Ingress.
    pub(crate) sources: BTreeMap<ObjectKey, Source>,
    /// What each object gets that asks for something, or that has something of this program.
    pub(crate) exposures: BTreeMap<ObjectKey, Exposures>,
    /// Whether every list was complete.
    pub(crate) is_complete: bool,
}

impl View {
    /// Reads the mirror.
    pub(crate) fn read(mirror: &Mirror, settings: &Settings, class: &str) -> Self {
        // Asked first: what becomes complete while reading is complete in the next view.
        let is_complete = mirror.is_complete();
        let mut settings = settings.clone();
        for class in mirror.classes() {
            if let Some((name, is_default)) = convert::ingress_class(&class) {
                settings.ingress_classes.insert(name);
                settings.is_default_ingress_class |= is_default;
            }
        }
        let services = mirror.services().into_iter().map(|service| Source::from(convert::service(&service, class)));
        let ingresses = mirror.ingresses().into_iter().map(|ingress| Source::from(convert::ingress(&ingress)));
        let sources: BTreeMap<ObjectKey, Source> =
            services.chain(ingresses).map(|source| (source.key(), source)).collect();
        let mut exposures: BTreeMap<ObjectKey, Exposures> =
            sources.iter().map(|(key, source)| (key.clone(), expose(source, &sources, &settings))).collect();
        settle(&mut exposures);
        exposures.retain(|key, exposures| {
            let is_marked =
                sources.get(key).is_some_and(|source| source.meta().has_finalizer() || has_condition(source));
            is_marked || *exposures != Exposures::none()
        });
        Self { settings, sources, exposures, is_complete }
    }

    /// The sockets that are wanted.
    pub(crate) fn desired(&self) -> impl Iterator<Item = &Exposure> {
        self.exposures.values().flat_map(|exposures| &exposures.desired)
    }

    /// The objects that exist.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectKey> {
        self.sources.keys().cloned().collect()
    }

    /// How many refusals there are.
    pub(crate) fn refusals(&self) -> usize {
        self.exposures.values().map(|exposures| exposures.refusals.len()).sum()
    }
}

/// Whether an object has this program's condition.
pub(crate) fn has_condition(source: &Source) -> bool {
    use sallyport_kube_model::report::CONDITION_EXPOSED;
    match source {
        Source::Service(service) => {
            service.conditions.iter().any(|condition| condition.condition_type == CONDITION_EXPOSED)
        }
        Source::Ingress(_) => false,
    }
}

/// The slices of the cluster by their Service.
pub(crate) struct SlicesByService(HashMap<(String, String), Vec<Arc<KubeSlice>>>);

impl SlicesByService {
    /// Reads the mirror.
    pub(crate) fn read(mirror: &Mirror) -> Self {
        let mut by_service: HashMap<(String, String), Vec<Arc<KubeSlice>>> = HashMap::new();
        for slice in mirror.slices() {
            let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)).cloned();
            let namespace = slice.metadata.namespace.clone();
            if let (Some(service), Some(namespace)) = (service, namespace) {
                by_service.entry((namespace, service)).or_default().push(slice);
            }
        }
        Self(by_service)
    }

    /// The endpoints of a target, each with whether it is on its way out.
    pub(crate) fn endpoints(&self, target: &Target) -> Vec<(SocketAddr, bool)> {
        let key = (target.service.namespace.clone(), target.service.name.clone());
        let slices: Vec<_> = self.0.get(&key).into_iter().flatten().filter_map(|slice| convert::slice(slice)).collect();
        pool(&slices, target).members.into_iter().map(|member| (member.address, member.is_draining)).collect()
    }
}
