//! What CAs and networks do wrong: each error is the right one, and nothing hangs.

use std::{sync::Arc, time::Duration};

use sallyport_acme::{
    AcmeAccount, AcmeError, CALL_TIMEOUT, CertificateRequest, ChallengeKind::Http01, DirectoryConfig,
};

use crate::{
    pebble::{Pebble, Wanted},
    proxy::{Fault, Proxy},
    site::{PATIENCE, Site},
};

struct Bench {
    pebble: Pebble,
    proxy: Arc<Proxy>,
    config: DirectoryConfig,
    account: AcmeAccount,
    wanted: Wanted,
}

impl Bench {
    async fn start() -> Option<Self> {
        let pebble = Pebble::start().await?;
        let (proxy, config) = pebble.proxy().await;
        let account = AcmeAccount::create(&config).await.unwrap().0;
        Some(Self { pebble, proxy, config, account, wanted: Wanted::new(&["a.test"], &[Http01]) })
    }

    async fn obtain(&self) -> Result<sallyport_acme::Obtained, AcmeError> {
        let request = self.wanted.request();
        let result = self.account.obtain(&request, self.pebble.responder.clone());
        let result = tokio::time::timeout(PATIENCE, result).await.expect("an order hangs");
        assert_eq!(self.pebble.responder.left(), 0);
        result
    }

    /// The error of an order in which the next requests of this kind go wrong.
    async fn error(&self, of: &'static str, times: u32, fault: Fault) -> AcmeError {
        self.proxy.mend();
        self.proxy.spoil(of, times, fault);
        let error = self.obtain().await.unwrap_err();
        self.proxy.mend();
        error
    }
}

const EVERY_STEP: [&str; 6] =
    ["HEAD /nonce-plz", "POST /order-plz", "POST /authZ/", "POST /chalZ/", "POST /finalize-order/", "POST /certZ/"];

#[tokio::test]
async fn every_request_says_who_we_are() {
    let Some(bench) = Bench::start().await else { return };
    let request = bench.wanted.request();
    let order = bench.account.obtain(&request, bench.pebble.responder.clone());
    // Callers spawn it.
    fn spawnable<T: Send>(order: T) -> T {
        order
    }
    spawnable(order).await.unwrap();
    assert!(bench.proxy.have_all(&format!("\r\nuser-agent: sallyport/{}\r\n", env!("CARGO_PKG_VERSION"))));
    assert!(bench.proxy.have_all("\r\nhost: localhost:"));
}

#[tokio::test]
async fn a_rate_limit_says_how_long_to_wait() {
    let Some(bench) = Bench::start().await else { return };
    for (fields, expected) in [
        ("Retry-After: 90\r\n", Some(90)),
        ("Retry-After: Fri, 01 Jan 2100 00:00:00 GMT\r\n", Some(30 * 86_400)),
        ("Retry-After: 18446744073709551615\r\n", Some(30 * 86_400)),
        ("Retry-After: soon\r\n", None),
        ("", None),
    ] {
        for of in ["POST /order-plz", "POST /finalize-order/"] {
            let fault = Fault::problem(429, fields, "rateLimited", "too many orders");
            match bench.error(of, 1, fault).await {
                AcmeError::RateLimited { retry_after_seconds, detail } => {
                    assert_eq!((retry_after_seconds, detail.as_str()), (expected, "too many orders"));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    bench.obtain().await.unwrap();
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let Some(bench) = Bench::start().await else { return };
    let error = bench.error("POST /finalize-order/", 1, Fault::problem(403, "", "caa", "CAA forbids a.test")).await;
    assert!(matches!(&error, AcmeError::Caa { detail, .. } if detail == "CAA forbids a.test"), "{error}");
    let fault = Fault::problem(400, "", "rejectedIdentifier", "policy forbids a.test");
    match bench.error("POST /order-plz", 1, fault).await {
        AcmeError::Rejected { problem_type, status: 400, detail } => {
            assert_eq!((problem_type.as_str(), detail.as_str()), ("rejectedIdentifier", "policy forbids a.test"));
        }
        other => panic!("{other:?}"),
    }
    let error = bench.error("POST /order-plz", 1, Fault::answer(403, "", "<html>no</html>")).await;
    assert!(matches!(error, AcmeError::Rejected { status: 403, .. }), "{error}");
    let error = bench.error("POST /order-plz", 9, Fault::problem(409, "", "alreadyReplaced", "x")).await;
    assert!(matches!(error, AcmeError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn a_refused_replacement_is_ordered_without_it() {
    let Some(bench) = Bench::start().await else { return };
    let first = bench.obtain().await.unwrap();
    let request = CertificateRequest { replaces: Some(first.chain_pem.as_bytes()), ..bench.wanted.request() };
    for fault in [
        Fault::problem(409, "", "alreadyReplaced", "certificate has already been replaced"),
        Fault::problem(403, "", "unauthorized", "requester account did not request the certificate being replaced"),
        Fault::problem(404, "", "malformed", "parsing ARI CertID failed"),
        Fault::problem(500, "", "serverInternal", "could not find an order for the given certificate"),
    ] {
        let before = bench.proxy.count("POST /order-plz");
        bench.proxy.spoil("POST /order-plz", 1, fault);
        bench.account.obtain(&request, bench.pebble.responder.clone()).await.unwrap();
        assert_eq!(bench.proxy.count("POST /order-plz"), before + 2);
    }
    // A rate limit is not refused: nothing is sent after it.
    let before = bench.proxy.count("POST /order-plz");
    bench.proxy.spoil("POST /order-plz", 1, Fault::problem(429, "Retry-After: 5\r\n", "rateLimited", "x"));
    let error = bench.account.obtain(&request, bench.pebble.responder.clone()).await.unwrap_err();
    assert!(matches!(error, AcmeError::RateLimited { retry_after_seconds: Some(5), .. }), "{error}");
    assert_eq!(bench.proxy.count("POST /order-plz"), before + 1);
}

#[tokio::test]
async fn a_fault_of_the_ca_at_any_step_is_its_own() {
    let Some(bench) = Bench::start().await else { return };
    for of in EVERY_STEP {
        let error = bench.error(of, 9, Fault::problem(500, "", "serverInternal", "boom")).await;
        assert!(matches!(error, AcmeError::Server { status: 500, .. }), "{of}: {error}");
        let busy = Fault::problem(503, "Retry-After: 120\r\n", "rateLimited", "Service busy; retry later.");
        let error = bench.error(of, 9, busy).await;
        assert!(
            matches!(error, AcmeError::Server { status: 503, retry_after_seconds: Some(120), .. }),
            "{of}: {error}"
        );
    }
    bench.obtain().await.unwrap();
}

#[tokio::test]
async fn a_broken_network_at_any_step_is_unreachable() {
    let Some(bench) = Bench::start().await else { return };
    for of in EVERY_STEP {
        let error = bench.error(of, 99, Fault::Drop).await;
        assert!(matches!(&error, AcmeError::Unreachable { host, .. } if host == "localhost"), "{of}: {error}");
    }
    bench.obtain().await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_made_up_for() {
    let Some(bench) = Bench::start().await else { return };
    for of in EVERY_STEP.into_iter().chain(["POST /my-order/"]) {
        let before = bench.proxy.count("POST /certZ/");
        for fault in [Fault::Drop, Fault::LoseAnswer] {
            bench.proxy.spoil(of, 1, fault.clone());
            if let Err(error) = bench.obtain().await {
                panic!("{of} {fault:?}: {error}");
            }
            bench.proxy.mend();
        }
        assert!(bench.proxy.count("POST /certZ/") >= before + 2);
    }
    // A look at the order may fail a few times.
    bench.proxy.spoil("POST /my-order/", 3, Fault::problem(500, "", "serverInternal", "boom"));
    bench.obtain().await.unwrap();
}

#[tokio::test]
async fn malformed_answers_are_called_so() {
    let Some(bench) = Bench::start().await else { return };
    for of in ["POST /order-plz", "POST /authZ/", "POST /chalZ/", "POST /finalize-order/"] {
        for body in ["", "{", "null", "[]", "{\"status\":7}", &"[".repeat(100_000)] {
            let error = bench.error(of, 1, Fault::answer(200, "Replay-Nonce: x\r\n", body)).await;
            assert!(matches!(error, AcmeError::Malformed { .. }), "{of} {}: {error}", &body[..body.len().min(20)]);
        }
    }
    for of in ["POST /order-plz", "POST /certZ/", "HEAD /nonce-plz"] {
        let error = bench.error(of, 9, Fault::Garbage).await;
        assert!(matches!(error, AcmeError::Malformed { .. }), "{of}: {error}");
        let error = bench.error(of, 9, Fault::answer(302, "Location: https://localhost/\r\n", "")).await;
        assert!(matches!(&error, AcmeError::Malformed { what } if what.contains("302")), "{of}: {error}");
    }
    for of in ["POST /order-plz", "POST /certZ/"] {
        let error = bench.error(of, 9, Fault::Endless).await;
        assert!(matches!(&error, AcmeError::Malformed { what } if what.contains("longer than")), "{of}: {error}");
        let error = bench.error(of, 9, Fault::EndlessHead).await;
        assert!(matches!(error, AcmeError::Malformed { .. }), "{of}: {error}");
    }
}

#[tokio::test]
async fn what_a_ca_slips_in_is_refused() {
    let Some(bench) = Bench::start().await else { return };
    let token = Fault::Replace("\"token\": \"", "\"token\": \"../../");
    let error = bench.error("POST /authZ/", 9, token).await;
    assert!(matches!(&error, AcmeError::Malformed { what } if what.contains("token")), "{error}");
    let name = Fault::Replace("\"value\": \"a.test\"", "\"value\": \"b.test\"");
    let error = bench.error("POST /authZ/", 9, name).await;
    assert!(matches!(&error, AcmeError::Certificate(text) if text.contains("b.test")), "{error}");
    let insecure = Fault::Replace("\"finalize\": \"https", "\"finalize\": \"http");
    bench.proxy.mend();
    for of in ["POST /order-plz", "POST /my-order/"] {
        bench.proxy.spoil(of, 9, insecure.clone());
    }
    let error = bench.obtain().await.unwrap_err();
    assert!(matches!(&error, AcmeError::Malformed { what } if what.contains("not https")), "{error}");
    let key = Fault::answer(200, "", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let error = bench.error("POST /certZ/", 9, key).await;
    assert!(matches!(error, AcmeError::Certificate(_)), "{error}");
    let other = Site::new().chain_pem;
    let error = bench.error("POST /certZ/", 9, Fault::answer(200, "", &other)).await;
    assert!(matches!(&error, AcmeError::Certificate(text) if text == "it has another key"), "{error}");
    bench.obtain().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_none_is_called_so() {
    let Some(bench) = Bench::start().await else { return };
    for (from, to) in [("/nonce-plz\"", " /n\""), ("https://localhost", "http://localhost"), ("newOrder", "newOder")] {
        bench.proxy.spoil("GET /dir", 9, Fault::Replace(from, to));
        let error = AcmeAccount::create(&bench.config).await.unwrap_err();
        assert!(matches!(&error, AcmeError::Malformed { what } if what.contains("directory")), "{error}");
        bench.proxy.mend();
    }
    bench.proxy.spoil("GET /dir", 9, Fault::answer(404, "", "<html>"));
    let error = AcmeAccount::create(&bench.config).await.unwrap_err();
    assert!(matches!(error, AcmeError::Rejected { status: 404, .. }), "{error}");
}

#[tokio::test]
async fn a_ca_without_renewal_information_has_none() {
    let Some(bench) = Bench::start().await else { return };
    let obtained = bench.obtain().await.unwrap();
    bench.proxy.spoil("GET /dir", 9, Fault::Replace("renewalInfo", "somethingElse"));
    let (account, _) = AcmeAccount::create(&bench.config).await.unwrap();
    assert_eq!(account.renewal_info(obtained.chain_pem.as_bytes()).await.unwrap(), None);
    // It takes no replacement either.
    let request = CertificateRequest { replaces: Some(obtained.chain_pem.as_bytes()), ..bench.wanted.request() };
    account.obtain(&request, bench.pebble.responder.clone()).await.unwrap();
}

#[tokio::test]
async fn when_to_ask_again_has_bounds() {
    let Some(bench) = Bench::start().await else { return };
    let obtained = bench.obtain().await.unwrap();
    for (to, expected_seconds) in [("X-Retry-After: ", 6 * 3_600), ("Retry-After: 99999999999999999999", 30 * 86_400)] {
        bench.proxy.spoil("GET /draft-ietf-acme-ari", 1, Fault::Replace("Retry-After: ", to));
        let window = bench.account.renewal_info(obtained.chain_pem.as_bytes()).await.unwrap().unwrap();
        assert!(window.ask_again_after.as_secs().abs_diff(expected_seconds) < 2, "{window:?}");
    }
    bench.proxy.spoil("GET /draft-ietf-acme-ari", 1, Fault::problem(404, "", "malformed", "unknown"));
    let error = bench.account.renewal_info(obtained.chain_pem.as_bytes()).await.unwrap_err();
    assert!(matches!(error, AcmeError::Rejected { status: 404, .. }), "{error}");
}

#[tokio::test]
async fn nonces_that_are_refused_for_a_while_cause_no_second_order() {
    let Some(bench) = Bench::start().await else { return };
    let refused = Fault::problem(400, "", "badNonce", "stale");
    for of in ["POST /authZ/", "POST /chalZ/", "POST /my-order/", "POST /finalize-order/", "POST /certZ/"] {
        let before = bench.proxy.count("POST /order-plz");
        bench.proxy.spoil(of, 5, refused.clone());
        if let Err(error) = bench.obtain().await {
            panic!("{of}: {error}");
        }
        bench.proxy.mend();
        assert_eq!(bench.proxy.count("POST /order-plz"), before + 1, "{of}");
    }
    let error = bench.error("POST /order-plz", 99, refused).await;
    assert!(matches!(&error, AcmeError::Rejected { problem_type, .. } if problem_type == "badNonce"), "{error}");
}

#[tokio::test]
async fn a_wait_without_end_between_two_looks_ends_with_the_order() {
    let Some(bench) = Bench::start().await else { return };
    let pending = r#"{"status":"pending","finalize":"https://localhost/f","authorizations":[]}"#;
    let fields = "Retry-After: 18446744073709551615\r\nReplay-Nonce: x\r\n";
    bench.proxy.spoil("POST /my-order/", 99, Fault::answer(200, fields, pending));
    let request = CertificateRequest { time_limit: Duration::from_secs(2), ..bench.wanted.request() };
    let error = bench.account.obtain(&request, bench.pebble.responder.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the order, for which the CA asks to wait 2592000 seconds, takes longer than 2 seconds"
    );
    assert_eq!(bench.proxy.count("POST /my-order/"), 1);
    assert_eq!(bench.pebble.responder.left(), 0);
}

#[tokio::test]
async fn a_silent_ca_ends_with_the_limit_of_a_call() {
    let site = Arc::new(Site::new());
    let proxy = Proxy::start(site.clone(), 1).await;
    proxy.spoil("GET /dir", 9, Fault::Silence);
    let config = DirectoryConfig {
        url: format!("https://localhost:{}/dir", proxy.port),
        roots_pem: Some(site.root_pem.clone()),
        ..DirectoryConfig::default()
    };
    let call = tokio::spawn(async move { AcmeAccount::create(&config).await });
    while proxy.count("GET /dir") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nobody has anything to do but wait: time passes at once.
    tokio::time::pause();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), format!("a call to localhost takes longer than {} seconds", CALL_TIMEOUT.as_secs()));
}
