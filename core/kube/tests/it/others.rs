//! What users of other controllers suffered, and the rule that prevents it.

use std::time::Duration;

use sallyport_kube_model::{Action, SWEEP_AFTER, ServiceSource, Source, Target, pool};

use crate::{
    given::{endpoint, service, slice, socket_id},
    plans::World,
};

const EXPOSE: (&str, &str) = ("sallyport.dev/expose", "true");

fn web() -> ServiceSource {
    service("web", &["http:80"], &[EXPOSE])
}

/// A cluster with one Service that has its socket.
fn world() -> World {
    let mut world = World::new([Source::from(web())]);
    let plan = world.plan();
    world.apply(&plan);
    world
}

fn target(world: &World) -> Target {
    world.desired()[0].origins[0].target.clone()
}

fn a_finalizer_goes_with_the_last_socket() {
    let mut world = world();
    let mut deleting = web();
    deleting.meta.is_deleting = true;
    deleting.meta.finalizers = vec!["sallyport.dev/socket".to_owned()];
    world.objects = crate::given::objects([Source::from(deleting)]);
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.busy.len()), (1, 1));
    world.apply(&plan);
    assert!(world.plan().busy.is_empty(), "nothing keeps the finalizer");
}

fn a_finalizer_is_not_kept_by_what_cannot_be_deleted() {
    let mut world = world();
    world.owned[0].labels.insert("sallyport.dev/installation".to_owned(), "other".to_owned());
    world.owned[0].is_served_elsewhere = true;
    world.settings.installation = Some("own".to_owned());
    world.objects = crate::given::objects([Source::from(service("web", &["http:80"], &[]))]);
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.busy.len()), (0, 0));
}

fn what_others_own_stays() {
    let mut world = world();
    let mut foreign = world.owned[0].clone();
    foreign.id = socket_id(40);
    foreign.labels.clear();
    world.owned = vec![foreign];
    world.objects.clear();
    world.plan();
    world.now = SWEEP_AFTER * 9;
    assert_eq!(world.plan().actions, []);
}

fn a_cluster_without_its_memory_adopts_its_sockets() {
    let mut world = world();
    let mut again = web();
    again.meta.uid = "another".to_owned();
    again.meta.created = 9_999;
    world.objects = crate::given::objects([Source::from(again)]);
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.adopted.values().next()), (0, Some(&world.owned[0].id)));
}

fn an_empty_cluster_deletes_nothing_at_once() {
    let mut world = world();
    world.objects.clear();
    assert_eq!(world.plan().actions, []);
    world.now = Duration::from_mins(9);
    assert_eq!(world.plan().actions, []);
}

fn a_rollout_is_no_write() {
    let mut world = world();
    let before = pool([&slice("a", &["10.0.0.1", "10.0.0.2"])], &target(&world));
    let after = pool([&slice("a", &["10.0.0.2", "10.0.0.3"])], &target(&world));
    assert_ne!(before, after);
    assert_eq!(world.plan().actions, []);
}

fn a_terminating_pod_serves_while_nobody_else_does() {
    let world = world();
    let mut one = slice("a", &[]);
    let mut leaving = endpoint("10.0.0.1");
    (leaving.ready, leaving.serving, leaving.terminating) = (Some(false), Some(true), Some(true));
    one.endpoints.push(leaving);
    assert_eq!(pool([&one], &target(&world)).active().len(), 1);
    one.endpoints.push(endpoint("10.0.0.2"));
    let found = pool([&one], &target(&world));
    assert_eq!((found.active().len(), found.draining().len()), (1, 1));
}

fn a_write_that_happens_twice_makes_one_socket() {
    let mut world = World::new([Source::from(web())]);
    let twice = [world.plan(), world.plan()];
    // Two leaders for a moment: the API refuses the second socket of the name, and a listing follows.
    let [Action::Create { key, .. }] = &twice[1].actions[..] else { panic!("{twice:?}") };
    world.apply(&twice[0]);
    world.memory.name_taken(key);
    let rest = world.plan();
    assert_eq!((rest.actions.len(), rest.adopted.len()), (0, 1));
}

#[test]
fn what_users_of_other_controllers_suffered_does_not_happen() {
    let cases: [(&str, fn()); 8] = [
        ("finalizers that stay for ever", a_finalizer_goes_with_the_last_socket),
        ("finalizers that stay with foreign sockets", a_finalizer_is_not_kept_by_what_cannot_be_deleted),
        ("deletion of what others own", what_others_own_stays),
        ("no adoption after the loss of etcd", a_cluster_without_its_memory_adopts_its_sockets),
        ("deletion by an empty list", an_empty_cluster_deletes_nothing_at_once),
        ("502 in rollouts", a_rollout_is_no_write),
        ("terminating endpoints", a_terminating_pod_serves_while_nobody_else_does),
        ("a lease is no fence", a_write_that_happens_twice_makes_one_socket),
    ];
    for (what, case) in cases {
        println!("{what}");
        case();
    }
}
