//! A mirror of what the cluster has: Services, EndpointSlices, Ingresses and their classes. Uses `cluster`.

mod convert;
mod view;

use std::{
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::Service,
        discovery::v1::EndpointSlice,
        networking::v1::{Ingress, IngressClass},
    },
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _, reflector,
        reflector::{Store, store::Writer},
        watcher,
    },
};
use sallyport_net::Shutdown;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::{info, warn};

pub(crate) use self::view::{SlicesByService, View, has_condition};
use crate::cluster::sentence;

/// How many objects one page of a list has.
const PAGE_ITEMS: u32 = 500;
/// The annotation in which kubectl repeats the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How soon the same error of a watch is logged again.
const SAME_ERROR_AFTER: Duration = Duration::from_secs(60);

/// The mirror; clones share it.
#[derive(Clone)]
pub(crate) struct Mirror {
    services: Vec<Store<Service>>,
    slices: Vec<Store<EndpointSlice>>,
    ingresses: Vec<Store<Ingress>>,
    classes: Store<IngressClass>,
    /// How many lists are not complete yet.
    missing: Arc<AtomicUsize>,
    changes: watch::Sender<u64>,
}

impl Mirror {
    /// Starts to watch these namespaces, or all of them where none is named, until the shutdown.
    pub(crate) fn start(client: &Client, namespaces: &[String], shutdown: &Shutdown) -> Self {
        let watches = Watches {
            client: client.clone(),
            missing: Arc::new(AtomicUsize::new(3 * namespaces.len().max(1) + 1)),
            changes: watch::channel(0).0,
            shutdown: shutdown.clone(),
        };
        Self {
            services: watches.of_namespaces(namespaces),
            slices: watches.of_namespaces(namespaces),
            ingresses: watches.of_namespaces(namespaces),
            classes: watches.start(Api::all(client.clone())),
            missing: watches.missing,
            changes: watches.changes,
        }
    }

    /// Reports every change of the mirror.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether every list was complete once, so that what is not in the mirror is not in the cluster.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// The Services.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.services.iter().flat_map(Store::state).collect()
    }

    /// The EndpointSlices.
    pub(crate) fn slices(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices.iter().flat_map(Store::state).collect()
    }

    /// The Ingresses.
    pub(crate) fn ingresses(&self) -> Vec<Arc<Ingress>> {
        self.ingresses.iter().flat_map(Store::state).collect()
    }

    /// The IngressClasses.
    pub(crate) fn classes(&self) -> Vec<Arc<IngressClass>> {
        self.classes.state()
    }
}

/// What every watch needs.
struct Watches {
    client: Client,
    missing: Arc<AtomicUsize>,
    changes: watch::Sender<u64>,
    shutdown: Shutdown,
}

impl Watches {
    fn of_namespaces<K>(&self, namespaces: &[String]) -> Vec<Store<K>>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        K::DynamicType: Default + Eq + Hash + Clone,
    {
        match namespaces {
            [] => vec![self.start(Api::all(self.client.clone()))],
            named => named.iter().map(|name| self.start(Api::namespaced(self.client.clone(), name))).collect(),
        }
    }

    /// Mirrors one kind in a task, until the shutdown.
    fn start<K>(&self, api: Api<K>) -> Store<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        K::DynamicType: Default + Eq + Hash + Clone,
    {
        let writer = Writer::<K>::default();
        let store = writer.as_reader();
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        let stream =
            watcher(api, watcher::Config::default().page_size(PAGE_ITEMS)).default_backoff().modify(|object| {
                object.managed_fields_mut().clear();
                object.annotations_mut().remove(LAST_APPLIED);
            });
        let stream = reflector(writer, stream);
        let (missing, changes, shutdown) = (self.missing.clone(), self.changes.clone(), self.shutdown.clone());
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            let (mut is_first, mut logged) = (true, None::<(String, tokio::time::Instant)>);
            loop {
                let event = tokio::select! {
                    event = stream.next() => event,
                    () = shutdown.wait() => return,
                };
                match event {
                    None => return,
                    Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) => continue,
                    Some(Ok(watcher::Event::InitDone)) => {
                        if logged.take().is_some() {
                            info!(%kind, "the watch works again");
                        }
                        if std::mem::take(&mut is_first) {
                            missing.fetch_sub(1, Ordering::AcqRel);
                        }
                    }
                    Some(Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_))) => {}
                    Some(Err(error)) => {
                        let text = sentence(&error);
                        let is_new =
                            logged.as_ref().is_none_or(|(last, at)| *last != text || at.elapsed() >= SAME_ERROR_AFTER);
                        if is_new {
                            warn!(%kind, error = %text, "the cluster cannot be watched; what is known stays in use");
                            logged = Some((text, tokio::time::Instant::now()));
                        }
                        continue;
                    }
                }
                changes.send_modify(|count| *count = count.wrapping_add(1));
            }
        });
        store
    }
}
