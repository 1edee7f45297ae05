//! The chart's admission policy knows the annotations of this crate, and no others.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_kube_model::{CLASS, FINALIZER, INGRESS_CONTROLLER, OPTIONS, OptionKind, annotations};
use serde_json::Value;

const OPTIONS_OF_CHART: &str = include_str!("../../../../integrations/helm/sallyport-kube/templates/_options.tpl");
const POLICY: &str = include_str!("../../../../integrations/helm/sallyport-kube/templates/admissionpolicy.yaml");
const VALUES: &str = include_str!("../../../../integrations/helm/sallyport-kube/values.yaml");
/// What the policy admits and refuses at a real API server.
const JUDGED: &str = include_str!("../../../../integrations/kubernetes/annotations.json");
const INGRESS_CLASS: &str = include_str!("../../../../integrations/helm/sallyport-kube/templates/ingressclass.yaml");
const PAGE: &str = include_str!("../../../../docs/kubernetes.md");

fn settable() -> BTreeSet<&'static str> {
    OPTIONS.iter().filter(|rule| rule.is_settable()).map(|rule| rule.name).collect()
}

#[test]
fn the_admission_policy_knows_the_options_that_annotations_set() {
    let named = OPTIONS_OF_CHART.lines().filter(|line| !line.is_empty() && !line.starts_with("{{"));
    assert_eq!(named.collect::<BTreeSet<_>>(), settable());
}

#[test]
fn the_admission_policy_calls_secrets_what_would_show_one() {
    let line = POLICY.lines().find(|line| line.contains("'password-stdin'")).unwrap();
    let named: BTreeSet<&str> = line.split('\'').skip(1).step_by(2).collect();
    let secrets = OPTIONS.iter().filter(|rule| match rule.kind {
        OptionKind::Refused(why, _) => why.contains("password"),
        _ => false,
    });
    assert_eq!(named, secrets.map(|rule| rule.name).collect());
}

#[test]
fn what_the_admission_policy_admits_and_refuses_is_admitted_and_refused_here() {
    let judged: Value = serde_json::from_str(JUDGED).unwrap();
    let read = |case: &Value| {
        let all: BTreeMap<String, String> = serde_json::from_value(case.clone()).unwrap();
        annotations(&all)
    };
    for case in judged["good"].as_array().unwrap() {
        assert_eq!(read(case).errors, [], "{case}");
    }
    for case in judged["bad"].as_array().unwrap() {
        assert!(!read(&case[0]).errors.is_empty(), "{case}");
    }
}

#[test]
fn the_page_names_each_option_once() {
    let table = PAGE.split("| about | options |").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut named: Vec<&str> = table.split('`').skip(1).step_by(2).filter(|word| *word != "all").collect();
    named.sort_unstable();
    let mut expected: Vec<_> = settable().into_iter().chain(["expose"]).collect();
    expected.sort_unstable();
    assert_eq!(named, expected);
}

#[test]
fn chart_and_page_have_the_names_of_this_crate() {
    assert!(VALUES.contains(&format!("loadBalancerClass: {CLASS}")));
    assert!(INGRESS_CLASS.contains(&format!("controller: {INGRESS_CONTROLLER}")));
    for word in [CLASS, FINALIZER] {
        assert!(PAGE.contains(word), "{word}");
    }
}
