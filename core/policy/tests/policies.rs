//! Tests of policies, compared with a plain reference evaluation.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

use std::net::IpAddr;

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};
use sallyport_model::{EmailDomain, PersonEmail};
use sallyport_policy::{
    Asn, Country, DecidedBy, Document, DocumentError, InlineAllow, MAX_DOCUMENT_BYTES, MAX_POLICY_RULES, PersonView,
    PolicyRequest, PolicyRule, PolicySet, Rule,
};
use serde_json::{Value, json};

fn document(value: &Value) -> Document {
    Document::parse(&value.to_string()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn set(policies: &[(&str, Value)]) -> PolicySet {
    compiled(policies, &[], &[], false)
}

fn compiled(policies: &[(&str, Value)], emails: &[&str], domains: &[&str], identity: bool) -> PolicySet {
    let policies: Vec<_> = policies.iter().map(|(name, document)| (*name, document.to_string())).collect();
    let emails: Vec<PersonEmail> = emails.iter().map(|email| email.parse().unwrap()).collect();
    let domains: Vec<EmailDomain> = domains.iter().map(|domain| domain.parse().unwrap()).collect();
    PolicySet::compile(&policies, &InlineAllow { emails: &emails, domains: &domains }, identity).unwrap()
}

fn unidentified() -> PolicyRequest<'static> {
    PolicyRequest {
        now_unix: 1_800_000_000,
        address: IpAddr::from([192, 0, 2, 1]),
        country: None,
        asn: None,
        person: None,
        service: None,
        method: Some("GET"),
        path: Some("/"),
        port: 443,
    }
}

const ANN: PersonView<'static> =
    PersonView { email: "ann@example.com", domain: "example.com", groups: &[], groups_stated: true, provider: "corp" };

fn ann() -> PolicyRequest<'static> {
    PolicyRequest { person: Some(ANN), ..unidentified() }
}

#[test]
fn a_document_allows_people_unless_it_admits_machines_only_or_no_subject() {
    let tokens = json!({"who": {"service_tokens": ["ci"]}});
    for (rules, expected) in [
        (json!({"allow": [tokens]}), false),
        (json!({"deny": [{"who": {"email_domains": ["example.com"]}}]}), false),
        (json!({"allow": [tokens, {"who": {"email_domains": ["example.com"]}}]}), true),
        (json!({"allow": [{"who": {"anyone": true}}]}), true),
        (json!({"allow": [{"what": {"methods": ["GET"]}}], "deny": [tokens]}), true),
    ] {
        document(&rules);
        assert_eq!(Document::allows_people(&rules.to_string()), expected, "{rules}");
    }
    assert!(!Document::allows_people("no document"));
}

#[test]
fn a_client_that_no_rule_allows_is_denied_and_an_open_socket_admits_all() {
    assert!(set(&[]).decide(&unidentified()).allowed && set(&[]).is_open());
    assert_eq!(set(&[]).decide(&unidentified()).by, DecidedBy::NothingAsked);
    let identity = compiled(&[], &[], &[], true);
    assert_eq!(identity.decide(&unidentified()).by, DecidedBy::NoIdentity);
    assert_eq!(identity.decide(&ann()).by, DecidedBy::NoRule);
    assert!(!identity.decide(&ann()).allowed && !identity.can_admit() && !identity.is_open());

    let policy = set(&[("staff", json!({"allow": [{"who": {"email_domains": ["example.com"]}}]}))]);
    assert!(!policy.decide(&unidentified()).allowed && policy.decide(&ann()).allowed);
    assert!(!policy.can_admit(), "without a login no client has an address");
    let service = PolicyRequest { service: Some("ci"), ..unidentified() };
    assert!(!policy.decide(&service).allowed);
    let tokens = compiled(&[("t", json!({"allow": [{"who": {"service_tokens": ["ci"]}}]}))], &[], &[], true);
    assert!(tokens.decide(&service).allowed && !tokens.decide(&ann()).allowed);
    assert!(!tokens.decide(&PolicyRequest { service: Some("CI"), ..service }).allowed);
}

#[test]
fn the_sockets_own_lists_let_in_and_a_denial_of_any_policy_wins() {
    let own = |policies: &[(&str, Value)]| compiled(policies, &["bob@other.org"], &["example.com"], true);
    let bob = PersonView { email: "bob@other.org", domain: "other.org", ..ANN };
    assert_eq!(own(&[]).decide(&ann()).by, DecidedBy::Domains);
    assert_eq!(own(&[]).decide(&PolicyRequest { person: Some(bob), ..unidentified() }).by, DecidedBy::Addresses);
    for (email, domain) in [
        ("eve@sub.example.com", "sub.example.com"),
        ("eve@notexample.com", "notexample.com"),
        ("x@other.org", "other.org"),
    ] {
        let question = PolicyRequest { person: Some(PersonView { email, domain, ..ANN }), ..unidentified() };
        assert!(!own(&[]).decide(&question).allowed, "{email}");
    }
    let deny = json!({"deny": [
        {"who": {"anyone": true}, "what": {"paths": ["/a"]}},
        {"name": "bad", "who": {"emails": ["Ann@Example.com"]}},
    ]});
    let allow = json!({"allow": [{"who": {"anyone": true}}]});
    let both = own(&[("all", allow), ("blocked", deny)]);
    let decision = both.decide(&ann());
    assert!(!decision.allowed);
    assert_eq!(decision.by, DecidedBy::Rule { policy: "blocked", rule: "deny rule 2 (\"bad\")", unjudged: None });
    assert_eq!(decision.by.to_string(), "policy \"blocked\", deny rule 2 (\"bad\")");
    assert!(both.decide(&PolicyRequest { person: Some(bob), ..unidentified() }).allowed);
}

#[test]
fn what_cannot_be_judged_is_denied_and_allowed_by_nothing() {
    let anyone = || json!({"who": {"anyone": true}});
    let denies = |rule: Value| set(&[("p", json!({"allow": [anyone()], "deny": [rule]}))]);
    let allows = |rule: Value| set(&[("p", json!({"allow": [rule]}))]);
    let silent = PolicyRequest { person: Some(PersonView { groups_stated: false, ..ANN }), ..unidentified() };
    let below_http = PolicyRequest { method: None, path: None, ..ann() };
    let service = PolicyRequest { service: Some("cd"), ..unidentified() };
    let abroad = PolicyRequest { country: "DE".parse().ok(), asn: Asn::new(1), ..ann() };
    for (rule, unknown, known) in [
        (json!({"who": {"groups": ["leavers"]}}), &silent, &ann()),
        (json!({"who": {"emails": ["bob@example.com"]}}), &unidentified(), &ann()),
        (json!({"who": {"service_tokens": ["ci"]}}), &unidentified(), &service),
        (json!({"who": {"service_tokens": ["ci"]}}), &unidentified(), &ann()),
        (json!({"who": {"emails": ["bob@example.com"]}}), &unidentified(), &service),
        (json!({"what": {"paths": ["/admin"]}}), &below_http, &ann()),
        (json!({"what": {"methods": ["DELETE"]}}), &below_http, &ann()),
        (json!({"where": ["country:CH"]}), &ann(), &abroad),
        (json!({"where": ["asn:64500"]}), &ann(), &abroad),
        (
            json!({"when": {"time_zone": "UTC", "weekly": [{"from": "01:00", "to": "02:00"}]}}),
            &PolicyRequest { now_unix: i64::MAX - 1, ..ann() },
            &ann(),
        ),
    ] {
        let denial = denies(rule.clone());
        let decision = denial.decide(unknown);
        assert!(!decision.allowed, "{rule}");
        assert!(decision.by.to_string().contains("unknown"), "{}", decision.by);
        assert!(denial.decide(known).allowed, "{rule}: it is known that this is not meant");
        assert!(!allows(rule.clone()).decide(unknown).allowed, "{rule}");
        // A rule that certainly does not match does not deny because of another unknown condition.
        let mut narrow = rule;
        narrow["what"]["ports"] = json!([5432]);
        assert!(denies(narrow).decide(unknown).allowed);
    }
    let staff = json!({"who": {"groups": ["staff"], "email_domains": ["other.org"]}});
    assert!(denies(staff).decide(&silent).allowed, "of another domain, whatever the groups");
    let stranger = denies(json!({"who": {"emails": ["bob@example.com"]}}));
    assert!(!stranger.can_admit(), "without a login any client may be the denied person");
    let partly = denies(json!({"who": {"emails": ["bob@example.com"]}, "where": ["10.0.0.0/8"]}));
    assert!(partly.can_admit());
}

#[test]
fn a_denied_path_has_no_other_spelling() {
    let policy =
        set(&[("p", json!({"allow": [{"who": {"anyone": true}}], "deny": [{"what": {"paths": ["/admin"]}}]}))]);
    let decide = |path| policy.decide(&PolicyRequest { path: Some(path), ..unidentified() }).allowed;
    for path in [
        "/admin",
        "/admin/",
        "/admin/x",
        "/%61dmin",
        "/x/../admin",
        "/admin/../x",
        "//admin",
        "/./admin",
        "/%2e/admin",
        "/x/..%2fadmin",
        "/ADMIN",
        "/%2561dmin",
        "/admin;x",
        "/admin%00",
        "/x\\..\\admin",
        "/%c1%a1dmin",
    ] {
        assert!(!decide(path), "{path}");
    }
    for path in ["/", "/administrator", "/x/admin", "/x?/admin", "/x?a/../admin"] {
        assert!(decide(path), "{path}");
    }
    let only = set(&[("p", json!({"allow": [{"what": {"paths": ["/public"], "methods": ["get"]}}]}))]);
    let decide =
        |method, path| only.decide(&PolicyRequest { path: Some(path), method: Some(method), ..unidentified() }).allowed;
    assert!(decide("GET", "/public/x") && decide("HEAD", "/public"));
    for path in ["/public/../admin", "/PUBLIC", "/public//x", "/public%2f..%2fadmin", "/other"] {
        assert!(!decide("GET", path), "{path}");
    }
    assert!(!decide("POST", "/public") && !decide("get", "/public"));
    assert!(
        !only.decide(&PolicyRequest { path: None, method: None, ..unidentified() }).allowed,
        "below HTTP there is no path"
    );
}

#[test]
fn windows_are_on_the_clocks_of_their_zone_through_every_change() {
    let at = |text: &str| text.parse::<sallyport_policy::Moment>().unwrap().unix();
    let open = |weekly: Value, zone: &str, time: &str| {
        let policy = json!({"allow": [{"when": {"weekly": weekly, "time_zone": zone}}]});
        set(&[("w", policy)]).decide(&PolicyRequest { now_unix: at(time), ..unidentified() }).allowed
    };
    let work = || json!([{"days": ["mon", "Tuesday"], "from": "09:00", "to": "17:30"}]);
    // Monday, 23 March 2026 in winter time, and Monday, 30 March 2026 in summer time.
    for (time, expected) in [
        ("2026-03-23T08:59:59+01:00", false),
        ("2026-03-23T09:00:00+01:00", true),
        ("2026-03-23T17:29:59+01:00", true),
        ("2026-03-23T17:30:00+01:00", false),
        ("2026-03-30T09:00:00+01:00", true),
        ("2026-03-30T08:59:59+02:00", false),
        ("2026-03-30T09:00:00+02:00", true),
        ("2026-03-24T12:00:00+01:00", true),
        ("2026-03-25T12:00:00+01:00", false),
    ] {
        assert_eq!(open(work(), "Europe/Zurich", time), expected, "{time}");
    }
    // On 29 March 2026 the clocks go from 02:00 to 03:00; on 25 October they go back, and 02:30 comes twice.
    let night = || json!([{"days": ["sun"], "from": "02:00", "to": "03:00"}]);
    assert!(!open(night(), "Europe/Zurich", "2026-03-29T01:59:59+01:00"));
    assert!(!open(night(), "Europe/Zurich", "2026-03-29T03:00:00+02:00"));
    for time in ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"] {
        assert!(open(night(), "Europe/Zurich", time), "{time}");
    }
    // Over midnight, and from Sunday into Monday.
    let late = || json!([{"days": ["sun"], "from": "22:00", "to": "06:00"}]);
    for (time, expected) in [
        ("2026-03-22T22:00:00Z", true),
        ("2026-03-23T05:59:59Z", true),
        ("2026-03-23T06:00:00Z", false),
        ("2026-03-23T22:00:00Z", false),
        ("2026-03-22T05:00:00Z", false),
    ] {
        assert_eq!(open(late(), "UTC", time), expected, "{time}");
    }
    assert!(open(json!([{}]), "Pacific/Auckland", "2026-06-01T00:00:00Z"), "every day, all day");
    assert!(open(json!([{"from": "22:00"}]), "America/St_Johns", "2026-07-01T23:59:59-02:30"));
}

#[test]
fn moments_bound_a_rule_and_times_are_known_to_be_there() {
    let policy =
        json!({"allow": [{"when": {"not_before": "2027-01-15T08:00:00Z", "not_after": "2027-01-15T10:00:00+01:00"}}]});
    let policy = set(&[("p", policy)]);
    let decide = |now_unix| policy.decide(&PolicyRequest { now_unix, ..unidentified() }).allowed;
    assert!(policy.has_times() && !set(&[]).has_times());
    assert!(!decide(1_799_999_999) && decide(1_800_000_000) && decide(1_800_003_599) && !decide(1_800_003_600));
    assert!(!decide(i64::MAX) && !decide(i64::MIN));
}

#[test]
fn unsatisfiable_rules_are_refused_in_one_sentence() {
    let now = 1_800_000_000;
    let refused = |value: Value| {
        let error = Document::parse(&value.to_string()).and_then(|document| document.check(now)).unwrap_err();
        error.to_string()
    };
    let allow = |rule: Value| refused(json!({"allow": [rule]}));
    for (says, found) in [
        ("has no rule", refused(json!({}))),
        ("allow is empty", refused(json!({"allow": []}))),
        ("allow is empty", refused(json!({"allow": [], "deny": [{"where": ["::1"]}]}))),
        ("has no condition and would apply to everybody", allow(json!({}))),
        ("has no condition and would apply to everybody", allow(json!({"name": "x"}))),
        ("who has no condition", allow(json!({"who": {}}))),
        ("what has no condition", allow(json!({"what": {}}))),
        ("when has no condition", allow(json!({"when": {}}))),
        ("emails is empty", allow(json!({"who": {"emails": []}}))),
        ("where is empty", allow(json!({"where": []}))),
        (
            "bob@other.org is in none of the email_domains",
            allow(json!({"who": {"emails": ["ann@example.com", "bob@other.org"], "email_domains": ["example.com"]}})),
        ),
        ("nobody is a person and a service token", allow(json!({"who": {"groups": ["a"], "service_tokens": ["b"]}}))),
        ("\"anyone\" cannot be combined", allow(json!({"who": {"anyone": true, "groups": ["a"]}}))),
        (
            "weekly window from 08:00 to 08:00",
            allow(json!({"when": {"time_zone": "UTC", "weekly": [{"from": "08:00", "to": "08:00"}]}})),
        ),
        ("has no day", allow(json!({"when": {"time_zone": "UTC", "weekly": [{"days": []}]}}))),
        ("need a time_zone", allow(json!({"when": {"weekly": [{}]}}))),
        ("is not a known time zone", allow(json!({"when": {"time_zone": "Etc/Unknown", "weekly": [{}]}}))),
        ("is not a known time zone", allow(json!({"when": {"time_zone": "Mars/Base", "weekly": [{}]}}))),
        ("is not a time of day", allow(json!({"when": {"time_zone": "UTC", "weekly": [{"from": "25:00"}]}}))),
        ("is not a day of the week", allow(json!({"when": {"time_zone": "UTC", "weekly": [{"days": ["so"]}]}}))),
        ("is not a moment", allow(json!({"when": {"not_after": "tomorrow"}}))),
        (
            "is not later than not_before",
            allow(json!({"when": {"not_before": "2030-01-01T00:00:00Z", "not_after": "2030-01-01T00:00:00Z"}})),
        ),
        ("is in the past", allow(json!({"when": {"not_after": "2020-01-01T00:00:00Z"}}))),
        // 1 January 2030 is a Tuesday.
        (
            "none of its weekly windows",
            allow(json!({"when": {
                "not_before": "2030-01-01T00:00:00Z",
                "not_after": "2030-01-03T00:00:00Z",
                "time_zone": "UTC",
                "weekly": [{"days": ["thu"]}],
            }})),
        ),
        // The hour that the clocks skip.
        (
            "none of its weekly windows",
            allow(json!({"when": {
                "not_before": "2027-03-26T12:00:00Z",
                "not_after": "2027-03-30T12:00:00Z",
                "time_zone": "Europe/Zurich",
                "weekly": [{"days": ["sun"], "from": "02:00", "to": "03:00"}],
            }})),
        ),
        ("0 is not a port", allow(json!({"what": {"ports": [0]}}))),
        ("is not an HTTP method", allow(json!({"what": {"methods": ["GET /"]}}))),
        ("is no path", allow(json!({"what": {"paths": ["admin"]}}))),
        ("unknown field", allow(json!({"whom": {}}))),
        ("invalid type: null", allow(json!({"who": {"emails": null}}))),
        (
            "denies every client that it allows",
            refused(
                json!({"allow": [{"who": {"emails": ["a@x.org"]}}], "deny": [{"who": {"email_domains": ["x.org"]}}]}),
            ),
        ),
        (
            "denies every client that it allows",
            refused(json!({
                "allow": [{"who": {"groups": ["a", "b"]}, "where": ["10.1.0.0/16"]}],
                "deny": [{"who": {"groups": ["b"]}}, {"who": {"groups": ["a"]}, "where": ["10.0.0.0/8"]}],
            })),
        ),
        ("denies every client that it allows", refused(json!({"deny": [{"who": {"anyone": true}}]}))),
        ("denies every client that it allows", refused(json!({"deny": [{"where": ["0.0.0.0/0", "::/0"]}]}))),
        (
            "denies every client that it allows",
            refused(json!({
                "allow": [{"what": {"paths": ["/a/b"], "methods": ["GET"]}}],
                "deny": [{"what": {"paths": ["/a"]}}],
            })),
        ),
    ] {
        assert!(found.contains(says) && !found.contains('\n'), "{says}: {found}");
    }
    for value in [
        json!({"deny": [{"where": ["country:CH"]}]}),
        json!({
            "allow": [{"who": {"emails": ["a@x.org"]}}, {"who": {"emails": ["b@x.org"]}}],
            "deny": [{"who": {"emails": ["a@x.org"]}}],
        }),
        json!({"allow": [{"who": {"groups": ["a"]}}], "deny": [{"who": {"groups": ["a"]}, "where": ["::/0"]}]}),
        json!({
            "allow": [{"when": {"time_zone": "UTC", "weekly": [{}]}}],
            "deny": [{"when": {"time_zone": "UTC", "weekly": [{"days": ["mon"]}]}}],
        }),
        json!({"allow": [{"what": {"methods": ["GET", "POST"]}}], "deny": [{"what": {"methods": ["POST"]}}]}),
    ] {
        let document = document(&value);
        document.check(now).unwrap_or_else(|error| panic!("{error}: {value}"));
        assert_eq!(Document::parse(&document.to_json()).unwrap(), document);
    }
}

#[test]
fn documents_have_bounds_and_what_ran_out_is_still_read() {
    let rules = |count: usize| json!({"allow": vec![json!({"where": ["::1"]}); count]}).to_string();
    assert!(Document::parse(&rules(MAX_POLICY_RULES)).is_ok());
    assert_eq!(
        Document::parse(&rules(MAX_POLICY_RULES + 1)).unwrap_err(),
        DocumentError::TooManyRules { count: MAX_POLICY_RULES + 1 }
    );
    assert!(matches!(Document::parse(&" ".repeat(MAX_DOCUMENT_BYTES + 1)), Err(DocumentError::TooLong { .. })));
    let many: Vec<_> = (1..=1_001).collect();
    let error = Document::parse(&json!({"allow": [{"what": {"ports": many}}]}).to_string()).unwrap_err();
    assert!(error.to_string().contains("allow rule 1: ports has 1001 entries and may have 1000"), "{error}");
    // A comparison that would take hours is abandoned.
    let (paths, methods): (Vec<_>, Vec<_>) =
        (0..1_000).map(|n| (format!("/{n}"), if n == 0 { "B" } else { "A" })).unzip();
    let value = json!({
        "allow": [{"what": {"paths": paths, "methods": methods}}],
        "deny": [{"what": {"paths": paths, "methods": ["A"]}}],
    });
    assert!(document(&value).check(0).is_ok());
    let past = json!({"allow": [{"when": {"not_after": "2020-01-01T00:00:00Z"}}]});
    assert!(!set(&[("old", past)]).decide(&unidentified()).allowed);
    let broken = PolicySet::compile(&[("x", "{")], &InlineAllow::default(), false).unwrap_err();
    assert!(broken.to_string().starts_with("policy \"x\": the policy cannot be read"), "{broken}");
    assert_eq!(PolicySet::deny_all().decide(&ann()).by, DecidedBy::Unreadable);
    assert!(!PolicySet::deny_all().decide(&ann()).allowed && !PolicySet::deny_all().is_open());
    assert!(!PolicySet::deny_all().can_admit());
}

// --- beside a plain evaluation -------------------------------------------------------------------------------------

const EMAILS: [&str; 3] = ["a@x.org", "b@x.org", "a@y.org"];
const DOMAINS: [&str; 2] = ["x.org", "y.org"];
const GROUPS: [&str; 3] = ["dev", "ops", "all"];
const PLACES: [&str; 5] = ["10.0.0.0/8", "10.1.0.0/16", "::/0", "country:CH", "asn:64500"];
const ADDRESSES: [&str; 4] = ["10.0.0.1", "10.1.0.1", "::1", "192.0.2.1"];
const METHODS: [&str; 2] = ["GET", "POST"];
const PATHS: [&str; 4] = ["/a", "/a/b", "/*/b", "/"];

fn some<T: Clone + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = Option<Vec<T>>> {
    option::weighted(0.3, subsequence(all, 1..=all.len()))
}

fn rule() -> impl Strategy<Value = Value> {
    let who = (some(&EMAILS), some(&DOMAINS), some(&GROUPS), some(&["corp", "home"]), some(&["ci", "cd"]));
    let what = (some(&METHODS), some(&PATHS), some(&[443_u16, 5432]));
    let when = option::weighted(0.3, (0_u32..24, 1_u32..24));
    (who, some(&PLACES), what, when).prop_map(|((emails, domains, groups, providers, services), places, what, when)| {
        let mut rule = json!({});
        let mut put = |group: &str, list: &str, value: Value| {
            if !value.is_null() {
                rule[group][list] = value;
            }
        };
        let is_person = emails.is_some() || domains.is_some() || groups.is_some() || providers.is_some();
        let fits = domains.is_none() || emails.is_none();
        put("who", "emails", json!(emails.filter(|_| fits)));
        put("who", "email_domains", json!(domains));
        put("who", "groups", json!(groups));
        put("who", "providers", json!(providers));
        put("who", "service_tokens", json!(services.filter(|_| !is_person)));
        put("what", "methods", json!(what.0));
        put("what", "paths", json!(what.1));
        put("what", "ports", json!(what.2));
        if let Some((from, hours)) = when {
            let clock = |hour: u32| format!("{:02}:00", hour % 24);
            let window = json!({"days": ["mon", "sun"], "from": clock(from), "to": clock(from + hours)});
            rule["when"] = json!({"time_zone": "UTC", "weekly": [window]});
        }
        if let Some(places) = places {
            rule["where"] = json!(places);
        }
        if rule == json!({}) { json!({"who": {"anyone": true}}) } else { rule }
    })
}

/// Whether the rule matches, condition by condition, as documented; `if_unknown` is the result for unknown facts.
fn means(rule: &PolicyRule, question: &PolicyRequest<'_>, if_unknown: bool) -> bool {
    let who = rule.who.clone().unwrap_or_default();
    let what = rule.what.clone().unwrap_or_default();
    let has_identity_conditions = emails_or_more(&who) || who.service_tokens.is_some();
    let person = question.person;
    let of = |list: &Option<Vec<String>>, value: Option<&str>| {
        list.as_ref().is_none_or(|list| value.is_some_and(|value| list.iter().any(|entry| entry == value)))
    };
    let emails = who.emails.map(|list| list.iter().map(|email| email.to_string()).collect());
    let domains = who.email_domains.map(|list| list.iter().map(|domain| domain.as_str().to_owned()).collect());
    let providers = who.providers.map(|list| list.iter().map(|provider| provider.to_string()).collect());
    let in_group = |list: &Vec<String>| {
        let if_unknown = if_unknown && person.is_some_and(|person| !person.groups_stated);
        person.is_some_and(|person| person.groups.iter().any(|group| list.contains(group))) || if_unknown
    };
    let is_private = ["10.0.0.1", "10.1.0.1", "::1"].contains(&question.address.to_string().as_str());
    let if_unknown_place = if_unknown && !is_private;
    let place = |rule: &Rule| match rule {
        Rule::Network(network) => network.contains(question.address),
        Rule::Country(country) => question.country.map_or(if_unknown_place, |found| found == *country),
        Rule::Asn(asn) => question.asn.map_or(if_unknown_place, |found| found == *asn),
    };
    let is_stranger = person.is_none() && question.service.is_none();
    let beneath = |pattern: &str| {
        let segments = |path: &str| path.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let (pattern, path) = (segments(pattern), segments(question.path.unwrap()));
        pattern.len() <= path.len() && pattern.iter().zip(&path).all(|(wanted, found)| wanted == "*" || wanted == found)
    };
    let week_hour = (question.now_unix.div_euclid(3_600) + 3 * 24).rem_euclid(7 * 24);
    let in_window = |window: &sallyport_policy::Window| {
        let hour = |clock: String| clock[..2].parse::<i64>().unwrap();
        let (from, to) = (hour(window.from.to_string()), hour(window.to.to_string()));
        let length = (to - from).rem_euclid(24);
        // The windows begin on Monday and on Sunday.
        [0, 6].into_iter().any(|day| (week_hour - day * 24 - from).rem_euclid(7 * 24) < length)
    };
    let is_meant = of(&emails, person.map(|person| person.email))
        && of(&domains, person.map(|person| person.domain))
        && of(&providers, person.map(|person| person.provider))
        && of(&who.service_tokens, question.service)
        && who.groups.as_ref().is_none_or(in_group);
    (if is_stranger && has_identity_conditions { if_unknown } else { is_meant })
        && rule.from.as_ref().is_none_or(|rules| rules.iter().any(place))
        && of(&what.methods, question.method)
        && what.paths.as_ref().is_none_or(|paths| paths.iter().any(|path| beneath(path.as_str())))
        && what.ports.as_ref().is_none_or(|ports| ports.contains(&question.port))
        && rule.when.as_ref().is_none_or(|when| when.weekly.as_ref().unwrap().iter().any(in_window))
}

fn emails_or_more(who: &sallyport_policy::Who) -> bool {
    who.emails.is_some() || who.email_domains.is_some() || who.groups.is_some() || who.providers.is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn decisions_are_those_of_the_plain_evaluation(
        policies in vec((vec(rule(), 1..3), vec(rule(), 0..3)), 0..3),
        inline in (subsequence(&EMAILS, 0..2), subsequence(&DOMAINS, 0..1)),
        identity in any::<bool>(),
        stated in any::<bool>(),
        person in option::of((select(&EMAILS[..]), subsequence(&GROUPS, 0..3), select(&["corp", "home"][..]))),
        service in option::weighted(0.3, select(&["ci", "cd"][..])),
        place in (
            select(&ADDRESSES[..]), option::of(select(&["CH", "DE"][..])), option::of(select(&[64_500_u32, 1][..])),
        ),
        what in (select(&METHODS[..]), select(&["/", "/a", "/a/b/", "/x/b", "/ab"][..]), select(&[443_u16, 5432][..])),
        hour in 0_i64..(7 * 24),
    ) {
        let policies: Vec<(String, Value)> = policies.into_iter().enumerate()
            .map(|(n, (allow, deny))| (format!("p{n}"), json!({"allow": allow, "deny": deny}))).collect();
        let named: Vec<(&str, Value)> = policies.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let compiled = compiled(&named, &inline.0, &inline.1, identity);
        let groups: Vec<String> = person
            .as_ref()
            .map(|(_, groups, _)| groups.iter().map(|g| (*g).to_owned()).collect())
            .unwrap_or_default();
        let question = PolicyRequest {
            now_unix: 1_800_000_000 + hour * 3_600,
            address: place.0.parse().unwrap(),
            country: place.1.map(|country| country.parse::<Country>().unwrap()),
            asn: place.2.and_then(Asn::new),
            person: person.as_ref().map(|(email, _, provider)| PersonView {
                email, domain: email.split_once('@').unwrap().1, groups: &groups, groups_stated: stated, provider,
            }),
            service: if person.is_some() { None } else { service },
            method: Some(what.0),
            path: Some(what.1),
            port: what.2,
        };
        let documents: Vec<Document> = policies.iter().map(|(_, value)| document(value)).collect();
        let found = |list: fn(&Document) -> &[PolicyRule], if_unknown: bool| {
            documents.iter().any(|document| list(document).iter().any(|rule| means(rule, &question, if_unknown)))
        };
        let denied = found(|document| &document.deny, true);
        let allowed = found(|document| document.allow.as_deref().unwrap_or_default(), false);
        let own = question
            .person
            .is_some_and(|person| inline.0.contains(&person.email) || inline.1.contains(&person.domain));
        let is_unidentified = identity && question.person.is_none() && question.service.is_none();
        let asks = identity || !documents.is_empty();
        let decision = compiled.decide(&question);
        prop_assert_eq!(decision.allowed, !is_unidentified && !denied && (own || allowed || !asks), "{:?}", decision);
        prop_assert!(!decision.allowed || compiled.can_admit() || !identity);
    }

    #[test]
    fn a_policy_refused_for_its_denials_admits_no_subject(
        allow in vec(rule(), 1..3), deny in vec(rule(), 1..3),
        email in select(&EMAILS[..]), groups in subsequence(&GROUPS, 0..3),
        address in select(&ADDRESSES[..]), method in select(&METHODS[..]), path in select(&PATHS[..]),
        hour in 0_i64..168,
    ) {
        let value = json!({"allow": allow, "deny": deny});
        if let Err(DocumentError::AllowsNobody { .. }) = document(&value).check(1_800_000_000) {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            let domain = email.split_once('@').unwrap().1;
            let person = PersonView { email, domain, groups: &groups, groups_stated: true, provider: "corp" };
            let question = PolicyRequest {
                now_unix: 1_800_000_000 + hour * 3_600, address: address.parse().unwrap(), person: Some(person),
                country: "CH".parse().ok(), asn: Asn::new(64_500), method: Some(method), path: Some(path),
                ..unidentified()
            };
            prop_assert!(!set(&[("p", value)]).decide(&question).allowed);
        }
    }

    #[test]
    fn no_text_is_too_strange(text in ".{0,200}", path in "[/a.%2fe;\\\\]{0,20}") {
        drop(Document::parse(&text));
        let document = json!({"allow": [{"what": {"paths": ["/a/*"]}}], "deny": [{"what": {"paths": ["/e"]}}]});
        let policy = set(&[("p", document)]);
        let _ = policy.decide(&PolicyRequest { path: Some(&path), ..unidentified() });
    }
}
