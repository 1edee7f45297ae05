//! What holds of any cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use sallyport_kube_model::{
    Action, AddressType, Endpoint, EndpointPort, EndpointSlice, IngressSource, IpFamily, LABEL_CLUSTER, MAX_POOL,
    ObjectMeta, Protocol, SWEEP_AFTER, ServicePort, ServiceRef, ServiceSource, ServiceType, Source, Target, TargetPort,
    pool,
};

use crate::{
    given::{backend, meta, rule, settings, socket_id},
    kube_fuzz::check,
    plans::World,
};

fn annotation() -> impl Strategy<Value = (String, String)> {
    let pairs = [
        ("sallyport.dev/expose", &["true", "true", "true", "false", "yes"][..]),
        ("mysocket.io/enabled", &["true", "false"]),
        ("sallyport.dev/port", &["all", "a", "a,b", "80", "nope"]),
        ("sallyport.dev/type", &["http", "https", "tcp", "tls", "udp", "x"]),
        ("sallyport.dev/a.type", &["http", "tcp", "udp"]),
        ("sallyport.dev/domain", &["a.example.com", "b.example.com", "off"]),
        ("sallyport.dev/b.domain", &["a.example.com", "b.example.com"]),
        ("sallyport.dev/policy", &["staff", "staff,night", "off"]),
        ("sallyport.dev/affinity", &["cookie", "address", "none"]),
        ("sallyport.dev/public-port", &["20001", "20002", "0"]),
        ("sallyport.dev/name-label", &["shop", "blog"]),
        ("sallyport.dev/name", &["Shop", "Blog"]),
        ("sallyport.dev/queue", &["5", "off"]),
        ("sallyport.dev/max-connections", &["5", "off"]),
        ("sallyport.dev/tpye", &["tcp"]),
        ("sallyport.dev/passthrough", &["true", "false"]),
    ];
    let all: Vec<_> = pairs
        .into_iter()
        .flat_map(|(key, values)| values.iter().map(move |value| (key.to_owned(), (*value).to_owned())))
        .collect();
    prop::sample::select(all)
}

fn port() -> impl Strategy<Value = ServicePort> {
    let protocol = prop::sample::select(vec![Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    let said =
        prop::option::of(prop::sample::select(vec!["http", "https", "kubernetes.io/h2c", "tls", "udp", "redis"]));
    (prop::sample::select(vec!["a", "b", "http"]), prop::sample::select(vec![80, 443, 5_432]), protocol, said).prop_map(
        |(name, port, protocol, said)| ServicePort {
            name: Some(name.to_owned()),
            port,
            target_port: TargetPort::Number(port),
            protocol,
            app_protocol: said.map(str::to_owned),
        },
    )
}

fn any_meta() -> impl Strategy<Value = ObjectMeta> {
    let name = prop::sample::select(vec!["web", "blog", "shop", "api"]);
    (name, prop::collection::vec(annotation(), 0..6), 0_i64..3, prop::bool::weighted(0.1)).prop_map(
        |(name, annotations, created, is_deleting)| ObjectMeta {
            annotations: annotations.into_iter().collect(),
            created,
            is_deleting,
            ..meta(name, &[])
        },
    )
}

fn source() -> impl Strategy<Value = Source> {
    let types = vec![ServiceType::ClusterIp, ServiceType::LoadBalancer, ServiceType::ExternalName];
    let service = (
        any_meta(),
        prop::sample::select(types),
        prop::option::of(prop::sample::select(vec!["sallyport.dev/edge", "sallyport.dev/x", "other"])),
        prop::collection::vec(port(), 0..4),
    )
        .prop_map(|(meta, service_type, class, mut ports)| {
            // An API server refuses two ports of one name.
            let mut seen = BTreeSet::new();
            ports.retain(|port| seen.insert(port.name.clone()));
            Source::Service(ServiceSource {
                meta,
                service_type,
                load_balancer_class: class.map(str::to_owned),
                ports,
                ..ServiceSource::default()
            })
        });
    let rules = prop::sample::select(vec![
        "a.example.com /=web:a",
        "a.example.com /api=blog:80",
        "b.example.com /=web:80 /x=shop:b",
        "* /=web:http",
        "*.example.com /=api:443",
        "localhost /=web:80",
    ]);
    let ingress =
        (any_meta(), prop::collection::vec(rules, 0..4), any::<bool>()).prop_map(|(meta, rules, is_default)| {
            Source::Ingress(IngressSource {
                meta,
                class: Some("sallyport".to_owned()),
                default_backend: is_default.then(|| backend("web:80")),
                rules: rules.into_iter().map(rule).collect(),
                ..IngressSource::default()
            })
        });
    prop_oneof![3 => service, 1 => ingress]
}

fn cluster() -> impl Strategy<Value = Vec<Source>> {
    prop::collection::vec(source(), 0..8)
}

/// Ids of the sockets that the plan of a world would delete or change.
fn touched(actions: &[Action]) -> BTreeSet<sallyport_model::SocketId> {
    let id = |action: &Action| match action {
        Action::Delete { id, .. } | Action::Update { id, .. } => Some(*id),
        Action::Create { .. } => None,
    };
    actions.iter().filter_map(id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn any_cluster_is_as_wanted_after_one_round(before in cluster(), after in cluster(), strangers in any::<bool>()) {
        let mut world = World::new(before);
        for round in [None, Some(after)] {
            if let Some(after) = round {
                world.objects = crate::given::objects(after);
            }
            if strangers {
                for socket in &mut world.owned.iter_mut().step_by(3) {
                    socket.labels.insert(LABEL_CLUSTER.to_owned(), "staging".to_owned());
                }
            }
            let foreign: BTreeMap<_, _> = world
                .owned
                .iter()
                .filter(|socket| socket.labels.get(LABEL_CLUSTER).is_none_or(|name| name != "prod"))
                .map(|socket| (socket.id, socket.clone()))
                .collect();
            // What is gone without a finalizer waits for the sweep.
            let first = world.plan();
            prop_assert!(touched(&first.actions).iter().all(|id| !foreign.contains_key(id)));
            world.now += SWEEP_AFTER;
            let plan = world.plan();
            prop_assert!(touched(&plan.actions).iter().all(|id| !foreign.contains_key(id)));
            world.apply(&plan);
            let rest = world.plan();
            prop_assert_eq!(&rest.actions, &[], "after {:?}", plan.actions);
            for (id, socket) in foreign {
                prop_assert_eq!(world.owned.iter().find(|one| one.id == id), Some(&socket));
            }
            let wanted: BTreeSet<_> =
                world.desired().into_iter().filter(|one| !one.is_held).map(|one| one.key).collect();
            let have: BTreeSet<_> = rest.adopted.keys().cloned().collect();
            prop_assert!(wanted.is_subset(&have), "{:?} {:?}", wanted, have);
        }
    }

    #[test]
    fn any_exposure_is_well_formed_and_any_refusal_has_a_remedy(sources in cluster()) {
        let objects = crate::given::objects(sources);
        for exposures in crate::given::all(&objects).values() {
            check(exposures, &settings());
        }
    }

    #[test]
    fn incomplete_lists_delete_only_what_was_seen(before in cluster(), keep in any::<u8>()) {
        let mut world = World::new(before);
        let plan = world.plan();
        world.apply(&plan);
        let mut at = 0;
        world.objects.retain(|_, _| { at += 1; keep >> (at % 8) & 1 == 1 });
        world.is_objects_complete = false;
        world.now += SWEEP_AFTER * 3;
        let seen: BTreeSet<_> = world.objects.keys().cloned().collect();
        for action in world.plan().actions {
            if let Action::Delete { key, .. } = &action {
                prop_assert!(key.as_ref().is_some_and(|key| seen.contains(&key.object)), "{:?}", action);
            }
        }
    }

    #[test]
    fn any_slices_make_a_bounded_pool(
        slices in prop::collection::vec(slice(), 0..6),
        first_is_v6 in any::<bool>(),
        publishes_not_ready in any::<bool>(),
    ) {
        let families = if first_is_v6 { vec![IpFamily::Ipv6, IpFamily::Ipv4] } else { vec![IpFamily::Ipv4] };
        let target = Target {
            service: ServiceRef { namespace: "default".to_owned(), name: "web".to_owned() },
            port_name: "http".to_owned(),
            protocol: Protocol::Tcp,
            families,
            publishes_not_ready,
        };
        let found = pool(&slices, &target);
        prop_assert!(found.members.len() <= MAX_POOL);
        let addresses: BTreeSet<_> = found.members.iter().map(|member| member.address).collect();
        prop_assert_eq!(addresses.len(), found.members.len(), "each address once");
        let is_v6: BTreeSet<_> = addresses.iter().map(std::net::SocketAddr::is_ipv6).collect();
        prop_assert!(is_v6.len() <= 1, "one family");
        prop_assert_eq!(found.active().is_empty(), found.members.is_empty());
        let turned: Vec<_> = slices.iter().rev().collect();
        prop_assert_eq!(pool(turned, &target), found);
    }
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let condition = || prop::option::of(any::<bool>());
    let address = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", "127.0.0.1", "pod", ""]);
    let endpoint =
        (address, condition(), condition(), condition()).prop_map(|(address, ready, serving, terminating)| Endpoint {
            addresses: vec![address.to_owned()],
            ready,
            serving,
            terminating,
            ..Endpoint::default()
        });
    let port = (prop::sample::select(vec!["http", "other"]), prop::option::of(0_u16..3))
        .prop_map(|(name, port)| EndpointPort { name: name.to_owned(), port, protocol: Protocol::Tcp });
    let kind = prop::sample::select(vec![AddressType::Ipv4, AddressType::Ipv6, AddressType::Fqdn]);
    (kind, prop::collection::vec(port, 0..3), prop::collection::vec(endpoint, 0..5)).prop_map(
        |(address_type, ports, endpoints)| EndpointSlice {
            namespace: "default".to_owned(),
            name: "x".to_owned(),
            service: "web".to_owned(),
            address_type,
            ports,
            endpoints,
        },
    )
}

#[test]
fn ids_of_tests_differ() {
    assert_ne!(socket_id(1), socket_id(2));
    assert!(Duration::ZERO < SWEEP_AFTER);
}
