//! Conditions, Events and the status of load balancers.

use std::time::Duration;

use sallyport_kube_model::{
    Protocol,
    report::{
        CONDITION_EXPOSED, ConditionStatus, EVENT_QUIET, Event, EventLog, EventType, MAX_MESSAGE_CHARS,
        MAX_REMEMBERED_EVENTS, Served, exposed, load_balancer,
    },
};

use crate::given::{balancer, exposed as expose, port, service};

fn served(port: &str, hostname: Option<&str>) -> Served {
    Served {
        port: port.to_owned(),
        hostname: hostname.map(str::to_owned),
        url: hostname.map(|name| format!("https://{name}")),
        is_up: true,
        error: None,
    }
}

#[test]
fn a_condition_says_where_the_service_is_and_changes_only_with_its_status() {
    let exposures = expose(service("web", &["http:80"], &[("sallyport.dev/expose", "true")]));
    let pending = exposed(&exposures, &[served("http", None)], Some(3), 100);
    assert_eq!((pending.condition_type.as_str(), pending.status), (CONDITION_EXPOSED, ConditionStatus::Unknown));
    assert_eq!(pending.clone().after(None), Some(pending.clone()));
    let idle = Served { is_up: false, ..served("http", Some("calm-bay.example")) };
    let idle = exposed(&exposures, &[idle], Some(3), 110);
    assert_eq!(idle.reason, "Connecting");
    assert_eq!(idle.after(Some(&pending)).unwrap().last_transition, 100, "only the reason differs");
    let up = exposed(&exposures, &[served("http", Some("calm-bay.example"))], Some(3), 120);
    assert_eq!((up.reason.as_str(), up.message.as_str()), ("Exposed", "https://calm-bay.example"));
    let up = up.after(Some(&pending)).unwrap();
    assert_eq!((up.status, up.last_transition, up.observed_generation), (ConditionStatus::True, 120, Some(3)));
    let later = exposed(&exposures, &[served("http", Some("calm-bay.example"))], Some(3), 999);
    assert_eq!(later.after(Some(&up)), None, "nothing to write");
    let failed =
        Served { error: Some(("QuotaReached".to_owned(), "the quota is reached".to_owned())), ..served("http", None) };
    let failed = exposed(&exposures, &[failed], Some(3), 130);
    assert_eq!((failed.status, failed.reason.as_str()), (ConditionStatus::False, "QuotaReached"));
    let refused = expose(service("web", &["80"], &[("sallyport.dev/expose", "yes"), ("sallyport.dev/tpye", "tcp")]));
    let refused = exposed(&refused, &[], None, 1);
    assert_eq!((refused.status, refused.reason.as_str()), (ConditionStatus::False, "InvalidAnnotation"));
    assert!(refused.message.ends_with("(1 more: see its Events)"), "{}", refused.message);
    let nothing = exposed(&expose(service("web", &["80"], &[])), &[], None, 1);
    assert_eq!(nothing.reason, "NotRequested");
}

#[test]
fn a_load_balancer_has_a_name_for_each_port() {
    let ports = [port("http:80"), port("dns:53/UDP"), port("db:5432")];
    let failed = Served { error: Some(("Taken".to_owned(), String::new())), ..served("dns", Some("b.example")) };
    let status = load_balancer(&ports, &[served("db", None), failed, served("http", Some("a.example"))]);
    let shown: Vec<_> = status.iter().map(|one| (one.hostname.as_str(), one.ports[0].port)).collect();
    assert_eq!(shown, [("a.example", 80), ("b.example", 53)]);
    assert_eq!((status[1].ports[0].protocol, status[1].ports[0].error.as_deref()), (Protocol::Udp, Some("Taken")));
    let same = load_balancer(&ports, &["http", "dns"].map(|port| served(port, Some("a.example"))));
    assert_eq!((same.len(), same[0].ports.len()), (1, 2));
    assert!(balancer("web", &["80"], &[]).status.is_empty());
}

#[test]
fn an_event_is_said_once_for_a_while() {
    let exposures = expose(service("web", &["80"], &[("sallyport.dev/expose", "yes")]));
    let event = Event::refused(&exposures.refusals[0]);
    assert_eq!((event.event_type, event.reason.as_str()), (EventType::Warning, "InvalidAnnotation"));
    assert!(event.message.contains("sallyport.dev/expose") && event.message.contains("write \"true\""));
    let mut log = EventLog::default();
    assert!(log.admit(&event, Duration::ZERO));
    assert!(!log.admit(&event, EVENT_QUIET - Duration::from_secs(1)));
    let other = Event { message: "another".to_owned(), ..event.clone() };
    assert!(log.admit(&other, Duration::from_secs(5)), "another message is another Event");
    assert!(log.admit(&event, EVENT_QUIET), "said again after the time");
    log.forget(&event.object);
    assert!(log.is_empty() && log.admit(&event, EVENT_QUIET));
}

#[test]
fn events_are_bounded() {
    let object = expose(service("web", &["80"], &[("sallyport.dev/expose", "yes")])).refusals[0].object.clone();
    let mut log = EventLog::default();
    for at in 0..MAX_REMEMBERED_EVENTS + 500 {
        let event = Event::new(object.clone(), EventType::Normal, "Made", &at.to_string());
        assert!(log.admit(&event, Duration::from_millis(u64::try_from(at).unwrap())));
    }
    assert_eq!(log.len(), MAX_REMEMBERED_EVENTS);
    let long = Event::new(object, EventType::Normal, "Made", &"ü".repeat(5_000));
    assert_eq!(long.message.chars().count(), MAX_MESSAGE_CHARS);
}
