//! Accounts at Pebble.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use sallyport_acme::{AcmeAccount, AcmeError, ChallengeKind::Http01, Directory, DirectoryConfig, ExternalAccount};

use crate::{
    pebble::{HMAC_KEY, KID, Pebble, Wanted, Wishes},
    proxy::{Fault, Proxy},
    site::Site,
};

#[tokio::test]
async fn a_directory_gives_the_clock_of_its_ca() {
    let Some(pebble) = Pebble::start().await else { return };
    let directory = Directory::fetch(&pebble.config()).await.unwrap();
    let ahead = time::OffsetDateTime::now_utc() - directory.clock.unwrap();
    assert!(ahead.abs() < time::Duration::MINUTE, "{ahead}");
    assert_eq!(directory.caa_identities, ["pebble.letsencrypt.org"]);

    let (proxy, config) = pebble.proxy().await;
    let body = r#"{"newNonce":"https://a.test/n","newAccount":"https://a.test/a","newOrder":"https://a.test/o",
        "meta":{"caaIdentities":["ca.example","\u001b[2J",7]}}"#;
    proxy.spoil("GET /dir", 1, Fault::answer(200, "", body));
    assert_eq!(Directory::fetch(&config).await.unwrap().caa_identities, ["ca.example"]);
}

#[tokio::test]
async fn an_account_is_restored_from_its_credentials() {
    let Some(pebble) = Pebble::start().await else { return };
    let config = pebble.config();
    let (account, credentials) = AcmeAccount::create(&config).await.unwrap();
    assert!(account.id().starts_with("https://localhost:"));
    assert_eq!(account.directory_url(), config.url);
    assert!(!format!("{account:?}").contains("key"));
    let restored = AcmeAccount::restore(&config, &credentials).await.unwrap();
    assert_eq!(restored.id(), account.id());
    let wanted = Wanted::new(&["a.test"], &[Http01]);
    restored.obtain(&wanted.request(), pebble.responder.clone()).await.unwrap();

    let elsewhere = DirectoryConfig { url: "https://localhost:1/dir".to_owned(), ..config.clone() };
    let error = AcmeAccount::restore(&elsewhere, &credentials).await.unwrap_err().to_string();
    assert!(error.starts_with("the stored ACME account belongs to another directory"), "{error}");
    for bad in ["", "{}", "null", "{\"directory\":7}", &credentials.replace("key_pkcs8\":\"", "key_pkcs8\":\"A")] {
        let error = AcmeAccount::restore(&config, bad).await.unwrap_err();
        assert!(matches!(error, AcmeError::Config(_)), "{bad}: {error}");
    }
}

#[tokio::test]
async fn a_ca_that_demands_an_external_account_gets_one() {
    let wishes = Wishes { is_external_account_required: true, ..Wishes::default() };
    let Some(pebble) = Pebble::start_with(wishes).await else { return };
    let mut config = pebble.config();
    let error = AcmeAccount::create(&config).await.unwrap_err();
    assert!(
        matches!(&error, AcmeError::Rejected { problem_type, .. } if problem_type == "externalAccountRequired"),
        "{error}"
    );
    config.external_account = Some(ExternalAccount::new(KID, "AAAA").unwrap());
    let error = AcmeAccount::create(&config).await.unwrap_err();
    assert!(matches!(error, AcmeError::Rejected { .. }), "{error}");
    config.external_account = Some(ExternalAccount::parse(&format!("{KID}\n{HMAC_KEY}\n")).unwrap());
    AcmeAccount::create(&config).await.unwrap();
}

#[tokio::test]
async fn a_site_that_is_not_trusted_gets_nothing() {
    let Some(pebble) = Pebble::start().await else { return };
    let config = DirectoryConfig { roots_pem: Some(crate::site::Site::new().root_pem), ..pebble.config() };
    let error = AcmeAccount::create(&config).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the CA at localhost cannot be reached: its certificate is not trusted here; name its root in a file if it is \
         a private CA"
    );
}

/// What a client says about a site whose own certificate, which signed itself as an authority does, it was told to
/// trust. The site answers everything with 404.
async fn error_of_own_certificate(name: &str, not_after_year: i32) -> AcmeError {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(not_after_year, 1, 1);
    let pem = params.self_signed(&key).unwrap().pem();
    let site = Site { root_pem: pem.clone(), chain_pem: pem.clone(), key_pem: key.serialize_pem() };
    let proxy = Proxy::start(Arc::new(site), 1).await;
    proxy.spoil("GET /dir", 1, Fault::answer(404, "", ""));
    let url = format!("https://127.0.0.1:{}/dir", proxy.port);
    let config = DirectoryConfig { url, roots_pem: Some(pem), ..DirectoryConfig::default() };
    AcmeAccount::create(&config).await.unwrap_err()
}

#[tokio::test]
async fn the_own_certificate_of_a_site_can_be_trusted() {
    let error = error_of_own_certificate("127.0.0.1", 2_100).await;
    assert!(matches!(error, AcmeError::Rejected { status: 404, .. }), "{error}");
    for (name, year) in [("localhost", 2_100), ("127.0.0.1", 2_020)] {
        let error = error_of_own_certificate(name, year).await;
        assert!(matches!(error, AcmeError::Unreachable { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    for (change, expected) in [
        (DirectoryConfig { url: "http://ca.example/dir".to_owned(), ..DirectoryConfig::default() }, "not an https URL"),
        (DirectoryConfig { url: "ca.example".to_owned(), ..DirectoryConfig::default() }, "not an https URL"),
        (DirectoryConfig { url: String::new(), ..DirectoryConfig::default() }, "not an https URL"),
        (
            DirectoryConfig {
                url: "https://ca.example/dir".to_owned(),
                roots_pem: Some("no PEM".to_owned()),
                ..DirectoryConfig::default()
            },
            "no usable certificate",
        ),
        (
            DirectoryConfig {
                url: "https://ca.example/dir".to_owned(),
                contact: Some("nobody".to_owned()),
                ..DirectoryConfig::default()
            },
            "not one e-mail address",
        ),
    ] {
        let error = AcmeAccount::create(&change).await.unwrap_err();
        assert!(matches!(&error, AcmeError::Config(text) if text.contains(expected)), "{error}");
    }
}

#[tokio::test]
async fn nobody_listens() {
    let port = crate::pebble::free_port();
    let config = DirectoryConfig { url: format!("http://127.0.0.1:{port}/dir"), ..DirectoryConfig::default() };
    let error = AcmeAccount::create(&config).await.unwrap_err();
    assert_eq!(error.to_string(), "the CA at 127.0.0.1 cannot be reached: nothing listens there");
}
