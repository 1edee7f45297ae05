//! Certificates of Pebble.

use sallyport_acme::{
    AcmeError, CertificateRequest,
    ChallengeKind::{Dns01, Http01, TlsAlpn01},
};
use time::Duration;

use crate::pebble::{Pebble, Wanted, Wishes};

#[tokio::test]
async fn every_kind_of_challenge_gives_a_certificate() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    for (kind, names) in
        [(Http01, vec!["a.test"]), (TlsAlpn01, vec!["b.test", "www.b.test"]), (Dns01, vec!["*.c.test"])]
    {
        let wanted = Wanted::new(&names, &[kind]);
        let request = CertificateRequest { profile: Some("default"), ..wanted.request() };
        let obtained = account.obtain(&request, pebble.responder.clone()).await.unwrap();
        assert!(obtained.chain_pem.matches("BEGIN CERTIFICATE").count() >= 2);
        assert_eq!((obtained.not_after - obtained.not_before).whole_days(), 89);
        let presented = pebble.responder.presented();
        let presented: Vec<_> = presented.iter().rev().take(names.len()).collect();
        assert!(presented.iter().all(|challenge| challenge.kind == kind));
        assert!(presented.iter().all(|challenge| challenge.is_wildcard == (kind == Dns01)));
        assert_eq!(pebble.responder.left(), 0);
        assert_eq!(pebble.responder.orders().last(), Some(&obtained.order_url));
    }
}

#[tokio::test]
async fn a_wildcard_and_its_base_share_an_order() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let wanted = Wanted::new(&["*.a.test", "a.test"], &[TlsAlpn01, Dns01]);
    account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    let mut kinds: Vec<_> = pebble.responder.presented().iter().map(|one| (one.is_wildcard, one.kind)).collect();
    kinds.sort_by_key(|(is_wildcard, _)| *is_wildcard);
    assert_eq!(kinds, [(false, TlsAlpn01), (true, Dns01)]);
    // Two texts in one TXT record.
    let wanted = Wanted::new(&["*.b.test", "b.test"], &[Dns01]);
    account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    let presented = pebble.responder.presented();
    assert_eq!(presented[2].dns_name(), presented[3].dns_name());
    assert_ne!(presented[2].dns_value(), presented[3].dns_value());
}

#[tokio::test]
async fn a_wildcard_without_dns_is_refused_with_the_reason() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let wanted = Wanted::new(&["*.a.test"], &[TlsAlpn01, Http01]);
    let error = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the CA could not verify a.test: no challenge can be answered: the CA offers dns-01, and this installation has \
         tls-alpn-01, http-01"
    );
}

#[tokio::test]
async fn a_wrong_answer_is_an_authorization_that_failed() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    pebble.responder.answer_wrongly(true);
    for kind in [Http01, TlsAlpn01, Dns01] {
        let wanted = Wanted::new(&["a.test"], &[kind]);
        let error = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap_err();
        match &error {
            AcmeError::Authorization { name, challenge, detail } => {
                assert_eq!((name.as_str(), *challenge), ("a.test", Some(kind)));
                assert!(detail.ends_with("(unauthorized)"), "{detail}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(pebble.responder.left(), 0);
    }
    pebble.responder.answer_wrongly(false);
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
}

#[tokio::test]
async fn valid_authorizations_are_used_again() {
    let wishes = Wishes { reuses_authorizations: true, ..Wishes::default() };
    let Some(pebble) = Pebble::start_with(wishes).await else { return };
    let account = pebble.account().await;
    for _ in 0..2 {
        let wanted = Wanted::new(&["a.test"], &[Http01]);
        account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    }
    assert_eq!(pebble.responder.presented().len(), 1);
    assert_eq!(pebble.responder.orders().len(), 2);
}

#[tokio::test]
async fn refused_nonces_are_no_failure() {
    let wishes = Wishes { bad_nonces_percent: 15, ..Wishes::default() };
    let Some(pebble) = Pebble::start_with(wishes).await else { return };
    let account = pebble.account().await;
    for name in ["a.test", "b.test", "c.test"] {
        let wanted = Wanted::new(&[name], &[Http01]);
        account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    }
    assert_eq!(pebble.responder.orders().len(), 3);
    assert_eq!(pebble.responder.left(), 0);
}

#[tokio::test]
async fn profiles_are_offered_and_kept() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let mut profiles = account.profiles();
    profiles.sort();
    assert_eq!(profiles, ["default", "short"]);
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    let request = CertificateRequest { profile: Some("short"), ..wanted.request() };
    let obtained = account.obtain(&request, pebble.responder.clone()).await.unwrap();
    assert!(obtained.not_after - obtained.not_before < Duration::days(7));
    let request = CertificateRequest { profile: Some("no-such"), ..wanted.request() };
    let error = account.obtain(&request, pebble.responder.clone()).await.unwrap_err();
    assert!(matches!(&error, AcmeError::Rejected { problem_type, .. } if problem_type == "invalidProfile"), "{error}");
}

#[tokio::test]
async fn a_certificate_is_replaced_when_its_ca_suggests() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    let first = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    let window = account.renewal_info(first.chain_pem.as_bytes()).await.unwrap().unwrap();
    assert!(first.not_before < window.start && window.start < window.end && window.end < first.not_after);
    assert_eq!(window.explanation_url, None);
    let past = r#"{"suggestedWindow":{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00+01:00"},
        "explanationURL":"https://ca.example/why"}"#;
    pebble.set_renewal_info(&first.chain_pem, past).await;
    let window = account.renewal_info(first.chain_pem.as_bytes()).await.unwrap().unwrap();
    assert_eq!(window.end.unix_timestamp(), 1_577_919_600);
    assert_eq!(window.explanation_url.as_deref(), Some("https://ca.example/why"));
    assert!(window.ask_again_after > std::time::Duration::from_secs(60));
    for bad in ["{", "[]", r#"{"suggestedWindow":{"start":"yesterday","end":"2020-01-02T00:00:00Z"}}"#] {
        pebble.set_renewal_info(&first.chain_pem, bad).await;
        let error = account.renewal_info(first.chain_pem.as_bytes()).await.unwrap_err();
        assert!(matches!(error, AcmeError::Malformed { .. }), "{error}");
    }
    let replaces = CertificateRequest { replaces: Some(first.chain_pem.as_bytes()), ..wanted.request() };
    let second = account.obtain(&replaces, pebble.responder.clone()).await.unwrap();
    assert_ne!(second.chain_pem, first.chain_pem);
    // It is replaced already: Pebble says 409, and the order is made without naming it.
    let third = account.obtain(&replaces, pebble.responder.clone()).await.unwrap();
    assert_ne!(third.chain_pem, second.chain_pem);
}

#[tokio::test]
async fn a_certificate_of_another_account_or_ca_is_not_named() {
    let Some(pebble) = Pebble::start().await else { return };
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    let first = pebble.account().await.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    let other = pebble.account().await;
    let replaces = CertificateRequest { replaces: Some(first.chain_pem.as_bytes()), ..wanted.request() };
    other.obtain(&replaces, pebble.responder.clone()).await.unwrap();
    // Pebble does not know a certificate of another CA, and calls that an error of its own.
    let Some(elsewhere) = Pebble::start().await else { return };
    let account = elsewhere.account().await;
    account.obtain(&replaces, elsewhere.responder.clone()).await.unwrap();
    let junk = CertificateRequest { replaces: Some(b"junk"), ..wanted.request() };
    account.obtain(&junk, elsewhere.responder.clone()).await.unwrap();
}

#[tokio::test]
async fn a_request_that_no_ca_would_take_is_not_sent() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let many: Vec<String> = (0..101).map(|number| format!("a{number}.test")).collect();
    for names in
        [vec![], vec![String::new()], vec!["*.".to_owned()], vec!["A.test".to_owned()], vec!["a b".to_owned()], many]
    {
        let wanted = Wanted { names, csr_der: Vec::new(), kinds: vec![Http01] };
        let error = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap_err();
        assert!(matches!(error, AcmeError::Config(_)), "{error}");
    }
    assert!(pebble.responder.orders().is_empty());
}
