//! What annotations say.

use std::collections::BTreeMap;

use sallyport_kube_model::{
    Annotations, MAX_ANNOTATION_BYTES, MAX_ANNOTATIONS, OPTIONS, OptionKind, Wish, annotations,
};

fn read(pairs: &[(&str, &str)]) -> Annotations {
    annotations(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

#[test]
fn the_table_is_in_order_and_every_option_is_read() {
    assert!(OPTIONS.is_sorted_by(|one, next| one.name < next.name));
    for rule in OPTIONS {
        let key = format!("sallyport.dev/{}", rule.name);
        let error = read(&[(&key, "\u{1}")]).errors.pop();
        let error = error.unwrap_or_else(|| panic!("{key} takes anything"));
        match rule.kind {
            OptionKind::Refused(why, remedy) => {
                assert_eq!((error.reason, error.message.as_str()), ("UnsupportedAnnotation", why), "{key}");
                assert!(error.remedy == remedy && rule.value.is_empty(), "{key}");
            }
            _ => {
                assert_eq!(error.reason, "InvalidAnnotation", "{key}");
                assert!(error.remedy.contains(rule.value) && !rule.value.is_empty(), "{key}: {}", error.remedy);
            }
        }
    }
}

#[test]
fn wishes_are_true_or_false() {
    for (pairs, wish) in [
        (&[("sallyport.dev/expose", "true")][..], Wish::Expose),
        (&[("sallyport.dev/expose", "false")], Wish::Never),
        (&[("mysocket.io/enabled", "true")], Wish::Article),
        (&[("mysocket.io/enabled", "true"), ("sallyport.dev/expose", "false")], Wish::Never),
        (&[("mysocket.io/enabled", "true"), ("sallyport.dev/expose", "true")], Wish::Expose),
        (&[("mysocket.io/enabled", "false")], Wish::None),
        (&[("other.example.com/expose", "maybe")], Wish::None),
    ] {
        let said = read(pairs);
        assert_eq!((said.wish, said.errors.len()), (wish, 0), "{pairs:?}");
    }
    for bad in ["yes", "True", "1", "", "on", &"x".repeat(300)] {
        let said = read(&[("sallyport.dev/expose", bad)]);
        let error = &said.errors[0];
        assert!(error.message.starts_with("expected \"true\" or \"false\"") && error.message.len() < 120, "{bad}");
        assert!(error.remedy.contains("\"true\""));
    }
}

#[test]
fn misspelt_options_get_the_nearest_known_one() {
    for (key, near) in [
        ("sallyport.dev/tpye", "did you mean sallyport.dev/type?"),
        ("sallyport.dev/Domain", "did you mean sallyport.dev/domain?"),
        ("sallyport.dev/domains", "did you mean sallyport.dev/domain?"),
        ("sallyport.dev/http.tpye", "did you mean sallyport.dev/http.type?"),
        ("sallyport.dev/helth-check", "did you mean sallyport.dev/health-check?"),
        ("sallyport.dev/exposed", "did you mean sallyport.dev/expose?"),
        ("sallyport.dev/http.expose", "did you mean sallyport.dev/expose?"),
        ("sallyport.dev/replicas", "remove it"),
        ("sallyport.dev/", "remove it"),
        ("sallyport.dev/.type", "did you mean sallyport.dev/type?"),
    ] {
        let said = read(&[(key, "x")]);
        let error = &said.errors[0];
        assert_eq!(error.reason, "UnknownAnnotation", "{key}");
        assert!(error.remedy.starts_with(near), "{key}: {}", error.remedy);
    }
    let long = format!("sallyport.dev/{}", "x".repeat(300));
    let error = read(&[(&long, "x")]).errors.pop().unwrap();
    assert!(error.message.len() < 120 && error.remedy.starts_with("remove it"));
}

#[test]
fn values_are_those_of_the_command() {
    for (option, good) in [
        ("health-check", "http:/healthz:200-299"),
        ("health-check", "off"),
        ("health-interval", "1m"),
        ("bytes-per-second", "10M"),
        ("bytes-per-second", "off"),
        ("allow", "10.0.0.0/8,country:CH,\n asn:64500"),
        ("allow", "off"),
        ("dial", "eu=20,us=5%"),
        ("dial", "off"),
        ("request-header", "X-A: 1\nX-B: 2"),
        ("host-header", "off"),
        ("origin-protocol", "h2c"),
        ("domain", "*.example.com,app.example.com"),
        ("connect-timeout", "500ms"),
        ("public-port", "65535"),
        ("weight", "0"),
        ("origin-pin", &"AB:".repeat(32)),
        ("region-max-rps", "eu=auto,us=off"),
        ("label", "team=web,app.kubernetes.io/name=x"),
    ] {
        let said = read(&[(&format!("sallyport.dev/{option}"), good)]);
        assert_eq!(said.errors, [], "{option}: {good}");
        assert!(!said.general.is_empty());
    }
    for (option, bad, says) in [
        ("health-check", "http://x/", "not a URL"),
        ("health-interval", "1500ms", "whole seconds"),
        ("bytes-per-second", "10T", "10M"),
        ("dial", "eu=101", "0 to 100"),
        ("dial", "eu=5,eu=6", "twice"),
        ("request-header", "X-A", "NAME: VALUE"),
        ("domain", "https://app.example.com", "a domain name alone"),
        ("connect-timeout", "0s", "a time"),
        ("connect-timeout", "2h", "an hour"),
        ("public-port", "0", "1 to 65535"),
        ("public-port", "65536", "1 to 65535"),
        ("weight", "-1", "0 to 1000"),
        ("type", "sctp", "sctp"),
        ("policy", "../x", "policy"),
        ("label", "sallyport.dev/cluster=other", "program's own"),
        ("port", "off", "the name or the number"),
        ("origin-server-name", "a b", "a host name"),
    ] {
        let said = read(&[(&format!("sallyport.dev/{option}"), bad)]);
        let error = said.errors.first().unwrap_or_else(|| panic!("{option}: {bad} is taken"));
        assert!(error.message.contains(says), "{option}: {bad}: {}", error.message);
    }
    let both = read(&[("sallyport.dev/cloudauth", "true"), ("sallyport.dev/no-cloudauth", "true")]);
    assert_eq!(both.errors[0].message, "its opposite is given too");
    let of_port = read(&[("sallyport.dev/web.port", "80")]);
    assert!(of_port.errors[0].message.contains("is for all ports"), "{of_port:?}");
}

#[test]
fn annotations_have_bounds() {
    let long = "x".repeat(MAX_ANNOTATION_BYTES + 1);
    assert_eq!(read(&[("sallyport.dev/allow", &long)]).errors[0].reason, "AnnotationTooLong");
    let many: BTreeMap<_, _> =
        (0..MAX_ANNOTATIONS + 50).map(|at| (format!("sallyport.dev/p{at}.type"), "tcp".to_owned())).collect();
    let said = annotations(&many);
    assert_eq!((said.ports.len(), said.errors.len()), (MAX_ANNOTATIONS, 1));
    assert_eq!(said.errors[0].reason, "TooManyAnnotations");
}
