//! Orders that are interrupted, and continued.

use std::{sync::Arc, time::Duration};

use sallyport_acme::{AcmeAccount, AcmeError, CertificateRequest, ChallengeKind::Http01};

use crate::{
    pebble::{Pebble, Wanted},
    proxy::{Fault, Proxy},
    site::PATIENCE,
};

/// How an order is interrupted, like a process that is killed.
async fn interrupt_at(pebble: &Pebble, of: &'static str) -> (Arc<Proxy>, AcmeAccount, Wanted) {
    let (proxy, config) = pebble.proxy().await;
    let account = AcmeAccount::create(&config).await.unwrap().0;
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    proxy.spoil(of, 1, Fault::Silence);
    let request = wanted.request();
    tokio::select! {
        result = account.obtain(&request, pebble.responder.clone()) => panic!("{result:?}"),
        () = async { while proxy.count(of) == 0 { tokio::time::sleep(Duration::from_millis(10)).await } } => {}
    }
    (proxy, account, wanted)
}

#[tokio::test]
async fn a_killed_process_never_causes_two_certificates() {
    let Some(pebble) = Pebble::start().await else { return };
    for of in ["POST /authZ/", "POST /chalZ/", "POST /my-order/", "POST /finalize-order/", "POST /certZ/"] {
        let orders = pebble.responder.orders().len();
        let (proxy, account, wanted) = interrupt_at(&pebble, of).await;
        let url = pebble.responder.orders().last().cloned().unwrap();
        let resumed = CertificateRequest { order_url: Some(&url), ..wanted.request() };
        let obtained = account.obtain(&resumed, pebble.responder.clone()).await.unwrap();
        assert_eq!(obtained.order_url, url, "{of}");
        assert_eq!(proxy.count("POST /order-plz"), 1, "{of}");
        assert_eq!(pebble.responder.orders().len(), orders + 1, "{of}");
        // Once more, after the certificate was issued and before it was stored.
        let again = account.obtain(&resumed, pebble.responder.clone()).await.unwrap();
        assert_eq!(again, obtained, "{of}");
    }
}

#[tokio::test]
async fn answers_are_taken_away_when_an_order_is_dropped() {
    let Some(pebble) = Pebble::start().await else { return };
    interrupt_at(&pebble, "POST /chalZ/").await;
    assert_eq!(pebble.responder.presented().len(), 1);
    let left = async {
        while pebble.responder.left() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, left).await.unwrap();
}

#[tokio::test]
async fn an_order_that_cannot_be_continued_is_made_anew() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    // Nobody knows it, and it is no URL that is called.
    let unknown = format!("https://localhost:{}/my-order/unknown", pebble.port);
    for url in [unknown.as_str(), "http://localhost/my-order/1", "junk"] {
        let request = CertificateRequest { order_url: Some(url), ..wanted.request() };
        let obtained = account.obtain(&request, pebble.responder.clone()).await.unwrap();
        assert_ne!(obtained.order_url, url);
    }
    // It is invalid.
    pebble.responder.answer_wrongly(true);
    account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap_err();
    pebble.responder.answer_wrongly(false);
    let invalid = pebble.responder.orders().last().cloned().unwrap();
    let request = CertificateRequest { order_url: Some(&invalid), ..wanted.request() };
    let obtained = account.obtain(&request, pebble.responder.clone()).await.unwrap();
    assert_ne!(obtained.order_url, invalid);
    // Its key is lost, or it was for another name.
    for other in [Wanted::new(&["a.test"], &[Http01]), Wanted::new(&["b.test"], &[Http01])] {
        let request = CertificateRequest { order_url: Some(&obtained.order_url), ..other.request() };
        let new = account.obtain(&request, pebble.responder.clone()).await.unwrap();
        assert_ne!(new.order_url, obtained.order_url);
    }
    // It belongs to another account.
    let request = CertificateRequest { order_url: Some(&obtained.order_url), ..wanted.request() };
    pebble.account().await.obtain(&request, pebble.responder.clone()).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_causes_no_second_order() {
    let Some(pebble) = Pebble::start().await else { return };
    let (proxy, account, wanted) = interrupt_at(&pebble, "POST /certZ/").await;
    let url = pebble.responder.orders().last().cloned().unwrap();
    let resumed = CertificateRequest { order_url: Some(&url), ..wanted.request() };
    for fault in [Fault::answer(200, "", "{"), Fault::problem(500, "", "serverInternal", "boom"), Fault::Drop] {
        proxy.spoil("POST /my-order/", 9, fault);
        account.obtain(&resumed, pebble.responder.clone()).await.unwrap_err();
        proxy.mend();
    }
    let obtained = account.obtain(&resumed, pebble.responder.clone()).await.unwrap();
    assert_eq!(obtained.order_url, url);
    assert_eq!(proxy.count("POST /order-plz"), 1);
}

#[tokio::test]
async fn a_ca_that_forgot_the_account_says_so() {
    let Some(pebble) = Pebble::start().await else { return };
    let (account, credentials) = AcmeAccount::create(&pebble.config()).await.unwrap();
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    let obtained = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();
    let Some(other) = Pebble::start().await else { return };
    let moved = |text: &str| text.replace(&format!(":{}/", pebble.port), &format!(":{}/", other.port));
    let (credentials, order_url) = (moved(&credentials), moved(&obtained.order_url));
    let account = AcmeAccount::restore(&other.config(), &credentials).await.unwrap();
    let request = CertificateRequest { order_url: Some(&order_url), ..wanted.request() };
    let error = account.obtain(&request, other.responder.clone()).await.unwrap_err();
    assert!(error.is_account_gone(), "{error}");
}

#[tokio::test]
async fn an_order_that_cannot_be_stored_or_answered_ends() {
    let Some(pebble) = Pebble::start().await else { return };
    let account = pebble.account().await;
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    pebble.responder.fail_to_store("the store is full");
    let error = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap_err();
    assert!(matches!(&error, AcmeError::Solver(reason) if reason == "the store is full"), "{error}");
    assert!(pebble.responder.presented().is_empty());
    pebble.responder.fail_to_present("no edge is there");
    let error = account.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap_err();
    assert!(matches!(&error, AcmeError::Solver(reason) if reason == "no edge is there"), "{error}");
    assert_eq!(pebble.responder.left(), 0);
}
