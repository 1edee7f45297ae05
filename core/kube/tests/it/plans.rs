//! What is to be done, and what is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sallyport_kube_model::{
    Action, Backoff, Exposure, Failure, Field, LABEL_INSTALLATION, LABEL_POLICIES, Memory, OwnedSocket, Plan,
    SWEEP_AFTER, Seen, Settings, Source, plan,
};
use sallyport_model::Affinity;

use crate::given::{Objects, all, desired, keys, objects, service, settings, socket, socket_id};

const EXPOSE: (&str, &str) = ("sallyport.dev/expose", "true");

/// A cluster and the API, for one test.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) objects: Objects,
    pub(crate) owned: Vec<OwnedSocket>,
    pub(crate) memory: Memory,
    pub(crate) now: Duration,
    pub(crate) is_objects_complete: bool,
    pub(crate) is_sockets_complete: bool,
    next: u128,
}

impl World {
    pub(crate) fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        Self {
            settings: settings(),
            objects: objects(sources),
            owned: Vec::new(),
            memory: Memory::default(),
            now: Duration::ZERO,
            is_objects_complete: true,
            is_sockets_complete: true,
            next: 1,
        }
    }

    pub(crate) fn desired(&self) -> Vec<Exposure> {
        let mut all = self
            .objects
            .iter()
            .map(|(key, source)| (key.clone(), sallyport_kube_model::expose(source, &self.objects, &self.settings)))
            .collect();
        sallyport_kube_model::settle(&mut all);
        desired(&all)
    }

    pub(crate) fn plan(&mut self) -> Plan {
        let (desired, objects) = (self.desired(), keys(&self.objects));
        let seen = Seen {
            objects: &objects,
            is_objects_complete: self.is_objects_complete,
            is_sockets_complete: self.is_sockets_complete,
        };
        plan(&self.settings, &desired, &self.owned, seen, &mut self.memory, self.now)
    }

    /// Does what the plan says, as the API would.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        for action in &plan.actions {
            match action {
                Action::Delete { id, .. } => self.owned.retain(|socket| socket.id != *id),
                Action::Update { id, spec, labels, attach, detach, .. } => {
                    let there = self.owned.iter_mut().find(|socket| socket.id == *id).unwrap();
                    let mut policies = there.spec.policies.clone();
                    policies.retain(|policy| !detach.contains(policy));
                    policies.extend(attach.iter().cloned());
                    let (public_port, label) = (there.spec.public_port, there.spec.label.clone());
                    there.spec = (**spec).clone();
                    there.spec.policies = policies;
                    there.spec.public_port = there.spec.public_port.or(public_port);
                    there.spec.label = there.spec.label.clone().or(label);
                    there.labels = labels.clone();
                }
                Action::Create { spec, labels, .. } => {
                    let mut spec = (**spec).clone();
                    if spec.socket_type.has_port() {
                        spec.public_port = spec.public_port.or(Some(20_000));
                    }
                    spec.label = spec.label.or_else(|| "calm-bay-1000".parse().ok());
                    let id = socket_id(self.next);
                    self.owned.push(OwnedSocket { id, labels: labels.clone(), spec, is_served_elsewhere: false });
                    self.next += 1;
                }
            }
        }
    }

    fn settle(&mut self) {
        let plan = self.plan();
        self.apply(&plan);
        assert_eq!(self.plan().actions, [], "one round is enough");
    }

    fn change(&mut self, source: impl Into<Source>) {
        let source = source.into();
        self.objects.insert(source.key(), source);
    }
}

fn kinds(plan: &Plan) -> Vec<&'static str> {
    let kind = |action: &Action| match action {
        Action::Delete { .. } => "delete",
        Action::Update { .. } => "update",
        Action::Create { .. } => "create",
    };
    plan.actions.iter().map(kind).collect()
}

fn web(more: &[(&str, &str)]) -> Source {
    let annotations: Vec<_> = [EXPOSE].iter().chain(more).copied().collect();
    Source::from(service("web", &["http:80", "db:5432"], &annotations))
}

#[test]
fn sockets_are_made_changed_and_removed_with_their_service() {
    let mut world = World::new([web(&[])]);
    assert_eq!(kinds(&world.plan()), ["create"]);
    world.settle();
    world.change(web(&[("sallyport.dev/affinity", "cookie"), ("sallyport.dev/queue", "off")]));
    let changed = world.plan();
    let [Action::Update { fields, spec, .. }] = &changed.actions[..] else { panic!("{changed:?}") };
    assert_eq!(*fields, BTreeSet::from([Field::Affinity]), "only what differs");
    assert_eq!(spec.settings.affinity, Affinity::Cookie);
    world.settle();
    world.change(web(&[("sallyport.dev/port", "all"), ("sallyport.dev/db.type", "tcp")]));
    assert_eq!(kinds(&world.plan()), ["update", "create"]);
    world.settle();
    assert_eq!(world.owned.len(), 2);
    world.change(Source::from(service("web", &["http:80"], &[])));
    assert_eq!(kinds(&world.plan()), ["delete", "delete"], "the object is there and asks for nothing");
    world.settle();
    assert!(world.owned.is_empty());
}

#[test]
fn a_service_that_is_being_deleted_loses_its_sockets_at_once() {
    let mut world = World::new([web(&[])]);
    world.settle();
    let Source::Service(mut service) = web(&[]) else { panic!() };
    service.meta.is_deleting = true;
    world.change(service);
    world.is_objects_complete = false;
    world.is_sockets_complete = false;
    let plan = world.plan();
    assert_eq!(kinds(&plan), ["delete"], "its deletion was seen: no list has to be complete");
    assert_eq!(plan.busy.len(), 1, "the finalizer stays until the socket is gone");
    world.apply(&plan);
    assert!(world.plan().busy.is_empty());
}

#[test]
fn what_lacks_the_label_of_the_cluster_is_never_touched() {
    let mut world = World::new([web(&[])]);
    world.settle();
    for cluster in [None, Some("staging"), Some("")] {
        let mut foreign = world.owned[0].clone();
        foreign.id = socket_id(99);
        foreign.labels.remove("sallyport.dev/cluster");
        foreign.labels.extend(cluster.map(|name| ("sallyport.dev/cluster".to_owned(), name.to_owned())));
        world.owned.push(foreign);
    }
    let mut broken = world.owned[0].clone();
    broken.id = socket_id(100);
    broken.labels.remove("sallyport.dev/kind");
    world.owned.push(broken);
    assert_eq!(world.plan().actions, []);
    world.objects.clear();
    world.plan();
    world.now = SWEEP_AFTER;
    let swept = world.plan();
    assert_eq!(swept.actions.len(), 1, "{swept:?}");
    assert!(matches!(&swept.actions[0], Action::Delete { id, .. } if *id == world.owned[0].id));
}

#[test]
fn a_socket_of_another_cluster_is_not_adopted() {
    let mut world = World::new([web(&[])]);
    world.settle();
    world.owned[0].labels.insert("sallyport.dev/cluster".to_owned(), "staging".to_owned());
    let foreign = world.owned[0].clone();
    let plan = world.plan();
    assert_eq!((kinds(&plan), plan.adopted.len()), (vec!["create"], 0));
    world.settle();
    assert_eq!((world.owned.len(), &world.owned[0]), (2, &foreign));
}

#[test]
fn each_option_changes_its_own_field() {
    use Field as F;
    let cases = [
        ("name", "Shop", F::Name),
        ("type", "https", F::Type),
        ("origin-protocol", "http2", F::OriginProtocol),
        ("health-check", "tcp", F::HealthCheck),
        ("affinity", "cookie", F::Affinity),
        ("max-connections", "5", F::Limits),
        ("allow", "10.0.0.0/8", F::Access),
        ("deny", "country:CH", F::Access),
        ("cloudauth", "true", F::Identity),
        ("dial", "eu=20", F::Regions),
        ("region-max-rps", "eu=20", F::Regions),
        ("host-header", "origin", F::HostHeader),
        ("request-header", "X-Env: prod", F::Headers),
        ("remove-response-header", "Server", F::Headers),
        ("domain", "app.example.com", F::Domains),
        ("label", "team=web", F::Labels),
    ];
    let of_tls =
        [("proxy-protocol", "v2", F::ProxyProtocol), ("passthrough", "true", F::TlsMode), ("alpn", "h2", F::Alpn)];
    let of_udp = [("no-amplification-guard", "true", F::AmplificationGuard)];
    let groups = [("http:80", "http", &cases[..]), ("db:443", "tls", &of_tls), ("dns:53/UDP", "udp", &of_udp)];
    for (port, socket_type, cases) in groups {
        let plain = [EXPOSE, ("sallyport.dev/type", socket_type)];
        for (option, value, field) in cases {
            let key = format!("sallyport.dev/{option}");
            let mut with = plain.to_vec();
            with.retain(|(there, _)| *there != key);
            with.push((&key, value));
            let mut world = World::new([Source::from(service("web", &[port], &plain))]);
            world.settle();
            for annotations in [&with[..], &plain] {
                world.change(Source::from(service("web", &[port], annotations)));
                let plan = world.plan();
                if *field == F::Labels && annotations.len() == plain.len() {
                    assert_eq!(plan.actions, [], "a label that is there stays");
                    continue;
                }
                let [Action::Update { fields, .. }] = &plan.actions[..] else { panic!("{option}: {plan:?}") };
                assert_eq!(*fields, BTreeSet::from([*field]), "{option}");
                world.settle();
            }
        }
    }
}

#[test]
fn a_sweep_waits_and_needs_both_lists() {
    let mut world = World::new([web(&[])]);
    world.settle();
    world.objects.clear();
    for (objects, sockets) in [(false, true), (true, false), (false, false)] {
        (world.is_objects_complete, world.is_sockets_complete) = (objects, sockets);
        world.now += SWEEP_AFTER;
        assert_eq!(world.plan(), Plan::default(), "{objects} {sockets}");
    }
    (world.is_objects_complete, world.is_sockets_complete) = (true, true);
    let began = world.now;
    let waiting = world.plan();
    assert_eq!((waiting.actions.len(), waiting.sweep_at), (0, Some(began + SWEEP_AFTER)));
    world.now = began + SWEEP_AFTER / 2;
    world.change(web(&[]));
    let back = world.plan();
    assert_eq!((back.actions.len(), back.sweep_at, back.adopted.len()), (0, None, 1));
    world.objects.clear();
    world.now = began + SWEEP_AFTER;
    assert_eq!(world.plan().actions, [], "it was back: the time begins anew");
    world.now += SWEEP_AFTER;
    assert_eq!(kinds(&world.plan()), ["delete"]);
}

#[test]
fn after_the_loss_of_etcd_the_same_sockets_are_adopted() {
    let mut world = World::new([web(&[]), Source::from(service("blog", &["80"], &[EXPOSE]))]);
    world.settings.installation = Some("old".to_owned());
    world.settle();
    let before: BTreeSet<_> = world.owned.iter().map(|socket| socket.id).collect();
    // etcd is empty, and the namespace kube-system is a new one.
    world.settings.installation = Some("new".to_owned());
    let kept = std::mem::take(&mut world.objects);
    for _ in 0..5 {
        world.now += SWEEP_AFTER;
        let plan = world.plan();
        assert_eq!((plan.actions.len(), plan.blocked.len()), (0, 2), "sockets of another installation are not swept");
        assert!(plan.blocked[0].remedy.contains("sallyport socket delete"), "{plan:?}");
    }
    world.objects = kept;
    let adopted = world.plan();
    assert_eq!(kinds(&adopted), ["update", "update"]);
    assert!(
        adopted.actions.iter().all(
            |action| matches!(action, Action::Update { fields, .. } if *fields == BTreeSet::from([Field::Labels]))
        )
    );
    world.settle();
    assert_eq!(world.owned.iter().map(|socket| socket.id).collect::<BTreeSet<_>>(), before);
    assert!(world.owned.iter().all(|socket| socket.labels[LABEL_INSTALLATION] == "new"));
}

#[test]
fn two_clusters_of_one_name_do_not_fight() {
    let mut world = World::new([web(&[])]);
    world.settings.installation = Some("other".to_owned());
    world.settle();
    world.settings.installation = Some("own".to_owned());
    world.owned[0].is_served_elsewhere = true;
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.blocked[0].reason), (0, "ClusterNameInUse"));
    assert!(plan.blocked[0].remedy.contains("--cluster"));
    world.change(Source::from(service("web", &["http:80"], &[])));
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.busy.len()), (0, 0), "nor is it deleted, and the finalizer goes");
}

#[test]
fn two_clusters_of_one_account_have_services_of_one_name() {
    let mut world = World::new([web(&[])]);
    let first = world.plan();
    let [Action::Create { key, spec, .. }] = &first.actions[..] else { panic!("{first:?}") };
    assert_eq!(spec.name.as_str(), "k8s default.web");
    assert_eq!(Failure::of(409, "name-taken", None), Failure::NameTaken);
    world.memory.name_taken(key);
    world.settle();
    assert_eq!(world.owned[0].spec.name.as_str(), "k8s default.web (prod)");
    world.memory = Memory::default();
    assert_eq!(world.plan().actions, [], "a new program leaves the name");
    world.owned[0].spec.name = "k8s default.web".parse().unwrap();
    let key = world.desired()[0].key.clone();
    world.memory.name_taken(&key);
    assert_eq!(world.plan().actions, [], "it was the own one");
}

#[test]
fn a_socket_that_cannot_become_the_wanted_one_is_replaced() {
    let mut world = World::new([web(&[("sallyport.dev/type", "tcp"), ("sallyport.dev/public-port", "20001")])]);
    world.settle();
    for more in [
        &[("sallyport.dev/type", "tcp"), ("sallyport.dev/public-port", "20002")][..],
        &[("sallyport.dev/type", "http")],
        &[("sallyport.dev/name-label", "shop")],
    ] {
        world.change(web(more));
        assert_eq!(kinds(&world.plan()), ["delete", "create"], "{more:?}");
        world.settle();
    }
    world.change(web(&[("sallyport.dev/type", "https")]));
    assert_eq!(kinds(&world.plan()), ["update"], "between http and https it can");
}

#[test]
fn a_held_exposure_keeps_its_socket_and_makes_none() {
    let mut world = World::new([web(&[("sallyport.dev/tpye", "tcp")])]);
    assert_eq!(world.plan(), Plan::default());
    world.change(web(&[("sallyport.dev/affinity", "cookie")]));
    world.settle();
    world.change(web(&[("sallyport.dev/afinity", "address")]));
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.adopted.len()), (0, 1), "a mistake takes nothing away");
}

#[test]
fn people_keep_their_policies_and_labels() {
    let mut world = World::new([web(&[("sallyport.dev/policy", "staff,night")])]);
    world.settle();
    assert_eq!(world.owned[0].labels[LABEL_POLICIES], "staff,night");
    world.owned[0].spec.policies.push("by-hand".to_owned());
    world.owned[0].labels.insert("team".to_owned(), "web".to_owned());
    assert_eq!(world.plan().actions, []);
    world.change(web(&[("sallyport.dev/policy", "staff,day")]));
    let plan = world.plan();
    let [Action::Update { attach, detach, fields, .. }] = &plan.actions[..] else { panic!("{plan:?}") };
    assert_eq!((attach.as_slice(), detach.as_slice()), (&["day".to_owned()][..], &["night".to_owned()][..]));
    assert_eq!(*fields, BTreeSet::from([Field::Policies, Field::Labels]));
    world.settle();
    assert_eq!(world.owned[0].spec.policies, ["staff", "by-hand", "day"]);
    assert_eq!(world.owned[0].labels["team"], "web");
    world.change(web(&[]));
    world.settle();
    assert_eq!(world.owned[0].spec.policies, ["by-hand"]);
    assert!(!world.owned[0].labels.contains_key(LABEL_POLICIES));
}

#[test]
fn doubles_are_removed() {
    let mut world = World::new([web(&[("sallyport.dev/allow", "10.0.0.0/8")])]);
    world.settle();
    let mut double = world.owned[0].clone();
    double.id = socket_id(50);
    world.owned.push(double);
    let plan = world.plan();
    assert!(matches!(&plan.actions[..], [Action::Delete { id, .. }] if *id == socket_id(50)), "{plan:?}");
    world.settle();
    assert_eq!(world.owned.len(), 1);
}

#[test]
fn nothing_is_made_before_the_sockets_are_known() {
    let mut world = World::new([web(&[])]);
    world.is_sockets_complete = false;
    assert_eq!(world.plan(), Plan::default());
    let exposure = world.desired().remove(0);
    world.owned.push(socket(7, &exposure));
    assert_eq!(world.plan().adopted.len(), 1);
}

#[test]
fn one_failing_socket_holds_up_no_other() {
    let world = World::new([web(&[]), Source::from(service("blog", &["80"], &[EXPOSE]))]);
    let [one, other] = &world.desired()[..] else { panic!() };
    let (one, other) = (&one.key, &other.key);
    let second = Duration::from_secs(1);
    let mut backoff = Backoff::default();
    let mut now = Duration::ZERO;
    for failures in 0..30 {
        backoff.failed(one, Failure::of(503, "", None), now, 999);
        assert!(!backoff.is_due(one, now) && backoff.is_due(other, now), "{failures}");
        let next = backoff.next(now).unwrap();
        assert!(next > now && next <= now + Duration::from_secs(72), "{failures}: {next:?}");
        now = next;
        assert!(backoff.is_due(one, now));
    }
    backoff.succeeded(one);
    backoff.failed(one, Failure::of(412, "", None), now, 0);
    assert!(backoff.is_due(one, now), "the next plan has the new version");
    backoff.failed(one, Failure::of(412, "", None), now, 0);
    assert!(!backoff.is_due(one, now));
    backoff.forget(one);
    for (status, code, reason) in
        [(409, "limit-reached", "QuotaReached"), (404, "not-found", "Refused"), (409, "domain-taken", "Taken")]
    {
        let failure = Failure::of(status, code, None);
        assert_eq!(failure.reason(), reason);
        backoff.failed(one, failure, now, 0);
        assert!(!backoff.is_due(one, now + second * 299) && backoff.is_due(one, now + second * 300), "{code}");
        assert!(backoff.is_due(other, now));
        backoff.forget(one);
        assert!(backoff.is_due(one, now), "a changed object is tried at once");
    }
}

#[test]
fn the_whole_account_waits_when_the_api_says_so() {
    let world = World::new([web(&[]), Source::from(service("blog", &["80"], &[EXPOSE]))]);
    let [one, other] = &world.desired()[..] else { panic!() };
    let (one, other) = (&one.key, &other.key);
    let seconds = Duration::from_secs;
    let mut backoff = Backoff::default();
    backoff.failed(one, Failure::of(429, "", Some(seconds(30))), seconds(0), 0);
    assert!(!backoff.is_due(other, seconds(29)) && backoff.is_due(other, seconds(30)));
    backoff.failed(one, Failure::of(429, "", Some(seconds(1 << 40))), seconds(0), 0);
    assert!(backoff.is_due(other, seconds(600)), "no answer holds everything for ever");
    backoff.failed(one, Failure::of(401, "", None), seconds(700), 0);
    assert!(!backoff.is_due(other, seconds(700)));
    backoff.token_changed();
    assert!(backoff.is_due(other, seconds(700)));
    for (status, code, failure) in [
        (0, "", Failure::Server),
        (500, "", Failure::Server),
        (403, "missing-scope", Failure::Unauthorized),
        (403, "quota-reached", Failure::Quota),
        (409, "port-taken", Failure::Taken),
        (409, "in-use", Failure::Conflict),
        (422, "invalid", Failure::Refused),
    ] {
        assert_eq!(Failure::of(status, code, None), failure, "{status} {code}");
        assert!(!failure.remedy().is_empty());
    }
}

#[test]
fn a_thousand_services_need_no_action_at_rest() {
    let service = |at: usize| {
        let mut one = service(&format!("s{at}"), &["http:80"], &[EXPOSE, ("sallyport.dev/affinity", "cookie")]);
        one.meta.created = 1;
        Source::from(one)
    };
    let mut world = World::new((0..1_000).map(service));
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1_000);
    world.apply(&plan);
    let began = std::time::Instant::now();
    let rest = world.plan();
    println!("1,000 Services are read, settled and compared in {:?}", began.elapsed());
    assert_eq!((rest.actions.len(), rest.adopted.len()), (0, 1_000));
    let names: BTreeMap<_, _> = all(&world.objects);
    assert!(names.values().all(|one| one.refusals.is_empty()));
}
