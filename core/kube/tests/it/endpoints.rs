//! The pods of a port.

use sallyport_kube_model::{
    AddressType, Endpoint, EndpointPort, EndpointSlice, IpFamily, MAX_POOL, Pool, Protocol, ServiceRef, Target, pool,
};

use crate::given::{endpoint, slice};

fn target() -> Target {
    Target {
        service: ServiceRef { namespace: "default".to_owned(), name: "web".to_owned() },
        port_name: "http".to_owned(),
        protocol: Protocol::Tcp,
        families: vec![IpFamily::Ipv4],
        publishes_not_ready: false,
    }
}

fn active(pool: &Pool) -> Vec<String> {
    pool.active().iter().map(ToString::to_string).collect()
}

fn with(address: &str, ready: Option<bool>, serving: Option<bool>, terminating: Option<bool>) -> Endpoint {
    Endpoint { ready, serving, terminating, ..endpoint(address) }
}

#[test]
fn conditions_decide_as_in_kube_proxy() {
    let (yes, no) = (Some(true), Some(false));
    // ready, serving, terminating; whether it is in the pool, and draining
    for (ready, serving, terminating, expected) in [
        (yes, yes, no, Some(false)),
        (None, None, None, Some(false)),
        (yes, None, None, Some(false)),
        (no, no, no, None),
        (no, yes, no, None),
        (no, yes, yes, Some(true)),
        (no, no, yes, None),
        (no, None, yes, None),
        (no, None, None, None),
    ] {
        let mut one = slice("a", &[]);
        one.endpoints = vec![with("10.0.0.1", ready, serving, terminating)];
        let found = pool([&one], &target());
        let member = found.members.first().map(|member| member.is_draining);
        assert_eq!(member, expected, "{ready:?} {serving:?} {terminating:?}");
        let every = Target { publishes_not_ready: true, ..target() };
        assert_eq!(pool([&one], &every).members.len(), 1, "all are published");
    }
}

#[test]
fn those_on_their_way_out_take_requests_only_alone() {
    let mut one = slice("a", &["10.0.0.2"]);
    one.endpoints.push(with("10.0.0.1", Some(false), Some(true), Some(true)));
    let both = pool([&one], &target());
    assert_eq!((active(&both), both.draining().len()), (vec!["10.0.0.2:8080".to_owned()], 1));
    one.endpoints.remove(0);
    assert_eq!(active(&pool([&one], &target())), ["10.0.0.1:8080"]);
    one.endpoints.clear();
    assert!(pool([&one], &target()).is_empty());
}

#[test]
fn slices_are_merged_and_those_of_others_left_out() {
    let mut leaving = slice("b", &[]);
    leaving.endpoints = vec![with("10.0.0.1", Some(false), Some(true), Some(true))];
    let mut foreign = slice("c", &["10.9.9.9"]);
    foreign.service = "other".to_owned();
    let mut elsewhere = slice("d", &["10.9.9.8"]);
    elsewhere.namespace = "other".to_owned();
    let mut fqdn = slice("e", &["pod.example.com"]);
    fqdn.address_type = AddressType::Fqdn;
    let mut udp = slice("f", &["10.9.9.7"]);
    udp.ports[0].protocol = Protocol::Udp;
    let mut unusable = slice("g", &["127.0.0.1", "0.0.0.0", "224.0.0.1", "x", "::1"]);
    unusable.address_type = AddressType::Ipv4;
    let slices = [leaving, slice("a", &["10.0.0.1", "10.0.0.2"]), foreign, elsewhere, fqdn, udp, unusable];
    let merged = pool(&slices, &target());
    assert_eq!(active(&merged), ["10.0.0.1:8080", "10.0.0.2:8080"], "ready in one slice is ready");
    let mut turned = slices.to_vec();
    turned.reverse();
    assert_eq!(pool(&turned, &target()), merged, "the order of slices does not matter");
}

#[test]
fn pods_may_differ_in_the_number_of_a_named_port() {
    let mut newer = slice("b", &["10.0.0.2"]);
    newer.ports[0].port = Some(9_090);
    newer.ports.push(EndpointPort { name: "metrics".to_owned(), port: Some(1), protocol: Protocol::Tcp });
    let mut portless = slice("c", &["10.0.0.3"]);
    portless.ports[0].port = None;
    let found = pool([&slice("a", &["10.0.0.1"]), &newer, &portless], &target());
    assert_eq!(active(&found), ["10.0.0.1:8080", "10.0.0.2:9090"]);
    let unnamed = Target { port_name: String::new(), ..target() };
    assert!(pool([&newer], &unnamed).is_empty());
}

#[test]
fn of_both_families_the_first_one_counts_unless_it_is_empty() {
    let (v4, v6) = (slice("a", &["10.0.0.1"]), slice("b", &["fd00::1"]));
    let dual = |families: &[IpFamily]| Target { families: families.to_vec(), ..target() };
    let (four, six) = (IpFamily::Ipv4, IpFamily::Ipv6);
    assert_eq!(active(&pool([&v4, &v6], &dual(&[six, four]))), ["[fd00::1]:8080"]);
    assert_eq!(active(&pool([&v4, &v6], &dual(&[four, six]))), ["10.0.0.1:8080"]);
    assert_eq!(active(&pool([&v4], &dual(&[six, four]))), ["10.0.0.1:8080"]);
    assert_eq!(active(&pool([&v6], &dual(&[]))), ["[fd00::1]:8080"]);
    let mut leaving = v6.clone();
    leaving.endpoints = vec![with("fd00::1", Some(false), Some(true), Some(true))];
    assert_eq!(active(&pool([&v4, &leaving], &dual(&[six, four]))), ["10.0.0.1:8080"], "a ready one is better");
}

#[test]
fn a_pool_has_a_bound_and_keeps_ready_endpoints_first() {
    let mut slices: Vec<EndpointSlice> = (0..25).map(|at| slice(&format!("s{at}"), &[])).collect();
    for (at, one) in slices.iter_mut().enumerate() {
        one.endpoints = (0..100).map(|low| endpoint(&format!("10.1.{at}.{low}"))).collect();
    }
    let mut leaving = slice("x", &[]);
    leaving.endpoints = vec![with("10.0.0.1", Some(false), Some(true), Some(true))];
    slices.push(leaving);
    let found = pool(&slices, &target());
    assert_eq!((found.members.len(), found.left_out), (MAX_POOL, 1_501));
    assert!(found.draining().is_empty() && found.members.is_sorted_by_key(|member| member.address));
    let exact = pool(&slices[..10], &target());
    assert_eq!((exact.members.len(), exact.left_out), (1_000, 0));
}
