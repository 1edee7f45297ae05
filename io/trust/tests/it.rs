//! The store in a temporary folder for each distribution's layout, and the machine's own where that is possible.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sallyport_pki::RootInfo;
use sallyport_pki::{Authority, KeyPair, PKCS_ECDSA_P256_SHA256};
use sallyport_trust::{Browser, BrowserStores, InstallError, Person, RemoveError, StoreError, TrustStore};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

/// A domain that never exists (RFC 6761 section 6.4), so a root for the domain does no harm.
const DOMAIN: &str = "sallyport-test.invalid";

fn authority(made: OffsetDateTime) -> Authority {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    Authority::create("Sallyport test root", DOMAIN, key, made, [1; 16]).unwrap()
}

fn ca_pem(dir: &Path) -> (PathBuf, String) {
    let authority = authority(OffsetDateTime::now_utc());
    let path = dir.join("ca.pem");
    fs::write(&path, authority.root_pem()).unwrap();
    (path, authority.fingerprint().to_string())
}

/// A system with this program, and this folder if given. The executed programs are recorded.
struct FakeSystem {
    dir: TempDir,
    ran: Arc<Mutex<Vec<(PathBuf, bool)>>>,
}

impl FakeSystem {
    fn new(program: Option<&str>, folder: Option<&str>) -> Self {
        let dir = TempDir::new().unwrap();
        if let Some(program) = program {
            let path = dir.path().join(program);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        if let Some(folder) = folder {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        Self { dir, ran: Arc::default() }
    }

    fn store(&self, outcome: Result<(), &'static str>) -> TrustStore {
        let ran = self.ran.clone();
        let run = move |program: &Path, arguments: &[&str]| {
            ran.lock().unwrap().push((program.to_owned(), arguments == ["--fresh"]));
            Ok(outcome.map_err(str::to_owned))
        };
        TrustStore::in_folder(self.dir.path(), Box::new(run))
    }

    fn files(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[test]
fn each_distribution_gets_the_root_where_it_looks_for_it() {
    let systems = [
        ("usr/sbin/update-ca-certificates", None, "usr/local/share/ca-certificates"),
        ("usr/bin/update-ca-trust", Some("etc/pki/ca-trust/source/anchors"), "etc/pki/ca-trust/source/anchors"),
        (
            "usr/bin/update-ca-trust",
            Some("etc/ca-certificates/trust-source/anchors"),
            "etc/ca-certificates/trust-source/anchors",
        ),
        ("usr/sbin/update-ca-certificates", Some("etc/pki/trust/anchors"), "etc/pki/trust/anchors"),
    ];
    for (program, folder, expected) in systems {
        let system = FakeSystem::new(Some(program), folder);
        let store = system.store(Ok(()));
        let (pem, fingerprint) = ca_pem(system.dir.path());
        let installed = store.install(&pem).unwrap();
        assert_eq!(installed.file.parent().unwrap(), system.dir.path().join(expected));
        assert_eq!(installed.file.extension().unwrap(), "crt", "Debian reads no other files");
        assert_eq!(fs::metadata(&installed.file).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(installed.fingerprint.to_string(), fingerprint);
        assert_eq!(installed.domain.as_deref(), Some(DOMAIN));
        assert!(!installed.was_there && store.has(installed.fingerprint));

        let again = store.install(&pem).unwrap();
        assert!(again.was_there);
        assert_eq!(system.files(expected).len(), 1);

        let removed = store.remove(&fingerprint.to_uppercase()).unwrap();
        assert_eq!(removed.file, Some(installed.file));
        assert!(system.files(expected).is_empty() && !store.has(installed.fingerprint));
        assert_eq!(store.remove(&fingerprint).unwrap().file, None, "a second time there is nothing to do");
        // update-ca-certificates keeps links to a deleted root, unless it runs with `--fresh`.
        let anew = program.ends_with("update-ca-certificates");
        let runs = [false, false, anew].map(|fresh| (system.dir.path().join(program), fresh));
        assert_eq!(*system.ran.lock().unwrap(), runs);
    }
}

#[test]
fn other_roots_stay() {
    let system = FakeSystem::new(Some("usr/sbin/update-ca-certificates"), Some("usr/local/share/ca-certificates"));
    let store = system.store(Ok(()));
    let theirs = system.dir.path().join("usr/local/share/ca-certificates/company.crt");
    fs::write(&theirs, "theirs").unwrap();
    let (pem, _) = ca_pem(system.dir.path());
    let first = store.install(&pem).unwrap();
    let (pem, second) = ca_pem(system.dir.path());
    store.install(&pem).unwrap();
    store.remove(&second).unwrap();
    assert!(store.has(first.fingerprint));
    assert_eq!(fs::read_to_string(theirs).unwrap(), "theirs");
}

#[test]
fn a_failed_update_leaves_the_store_as_it_was() {
    let system = FakeSystem::new(Some("usr/sbin/update-ca-certificates"), None);
    let (pem, _) = ca_pem(system.dir.path());
    let error = system.store(Err("no space left")).install(&pem).unwrap_err();
    assert!(matches!(error, InstallError::Store(StoreError::Update { .. })));
    assert!(error.to_string().ends_with("update-ca-certificates failed: no space left"), "{error}");
    assert!(system.files("usr/local/share/ca-certificates").is_empty());
}

#[test]
fn what_is_no_root_is_refused() {
    let system = FakeSystem::new(Some("usr/sbin/update-ca-certificates"), None);
    let store = system.store(Ok(()));
    let path = system.dir.path().join("ca.pem");
    assert!(matches!(store.install(&path), Err(InstallError::Read { .. })));
    for bad in [b"".as_slice(), b"\xff\xfe\x00", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        fs::write(&path, bad).unwrap();
        let error = store.install(&path).unwrap_err();
        assert!(matches!(error, InstallError::NotRootCertificate { .. }), "{error}");
    }
    let old = authority(OffsetDateTime::now_utc() - Duration::days(5_000));
    fs::write(&path, old.root_pem()).unwrap();
    assert!(matches!(store.install(&path), Err(InstallError::Ended { .. })));
    assert!(matches!(store.remove("nonsense"), Err(RemoveError::Fingerprint(_))));
    assert!(system.ran.lock().unwrap().is_empty());
}

#[test]
fn an_unknown_system_is_named_as_such() {
    let system = FakeSystem::new(None, Some("usr/local/share/ca-certificates"));
    let (pem, _) = ca_pem(system.dir.path());
    let error = system.store(Ok(())).install(&pem).unwrap_err();
    assert!(matches!(error, InstallError::Store(StoreError::Unknown)), "{error}");
}

#[test]
fn this_machines_own_store_takes_and_loses_a_root() {
    let is_root = rustix::process::geteuid().is_root();
    let bundle = Path::new("/etc/ssl/certs/ca-certificates.crt");
    if !Path::new("/usr/sbin/update-ca-certificates").is_file() || !bundle.is_file() {
        println!("skipped: no update-ca-certificates here");
        return;
    }
    let dir = TempDir::new().unwrap();
    let (pem, fingerprint) = ca_pem(dir.path());
    if !is_root {
        let error = sallyport_trust::install(&pem).unwrap_err().to_string();
        assert!(error.ends_with("run: sudo sallyport trust install"), "{error}");
        println!("skipped: not root");
        return;
    }
    let pem_text = fs::read_to_string(&pem).unwrap();
    let base64 = pem_text.lines().nth(3).unwrap();
    let is_in_bundle = || fs::read_to_string(bundle).unwrap().contains(base64);
    assert!(!is_in_bundle());
    let installed = sallyport_trust::install(&pem);
    let was_in_bundle = is_in_bundle();
    let removed = sallyport_trust::remove(&fingerprint).unwrap();
    assert!(was_in_bundle);
    assert_eq!(removed.file, Some(installed.unwrap().file));
    assert!(!is_in_bundle());
    let links = fs::read_dir("/etc/ssl/certs").unwrap().map(|entry| entry.unwrap().path());
    let ours = links.filter(|link| fs::read_link(link).is_ok_and(|to| to == removed.file.clone().unwrap()));
    assert_eq!(ours.count(), 0);
}

/// The trust stores of a user with this home, on a machine with these stub programs and these programs of the system.
fn stores(home: &Path, made: &[&str], of_system: &[&str]) -> BrowserStores {
    let bin = home.join("bin");
    fs::create_dir_all(&bin).unwrap();
    made.iter().for_each(|name| fs::write(bin.join(name), "").unwrap());
    for name in of_system {
        let found = ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
        std::os::unix::fs::symlink(found.unwrap(), bin.join(name)).unwrap();
    }
    BrowserStores::of(Person { home: home.to_owned(), ids: None }, vec![bin])
}

#[test]
fn browsers_without_certutil_are_reported_and_machines_without_browsers_are_not() {
    let home = TempDir::new().unwrap();
    let root = RootInfo::from_pem(authority(OffsetDateTime::now_utc()).root_pem()).unwrap();
    let none = stores(home.path(), &[], &[]);
    assert_eq!((none.check(), none.install(&root)), (Ok(()), Ok(Vec::new())));
    let home = TempDir::new().unwrap();
    let chromium = stores(home.path(), &["chromium"], &[]);
    let missing = chromium.check().unwrap_err();
    assert!(missing.to_string().ends_with("install libnss3-tools"), "{missing}");
    assert!(chromium.install(&root).is_err() && chromium.lacking(root.fingerprint).is_err());
    assert!(!home.path().join(".pki").exists(), "nothing was done");
}

#[test]
fn each_store_of_a_browser_gets_the_root_and_one_with_a_password_is_reported() {
    if !Path::new("/usr/bin/certutil").exists() {
        assert!(std::env::var_os("CI").is_none(), "certutil must be there in CI");
        println!("skipped: there is no certutil here (Debian's package `libnss3-tools`)");
        return;
    }
    let home = TempDir::new().unwrap();
    let locked = home.path().join("snap/firefox/common/.mozilla/firefox/x.default");
    fs::create_dir_all(&locked).unwrap();
    let password = home.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    let mut certutil = std::process::Command::new("certutil");
    certutil.args(["-N", "-f", password.to_str().unwrap(), "-d"]).arg(format!("sql:{}", locked.display()));
    assert!(certutil.status().unwrap().success());
    // A folder without a profile.
    fs::create_dir_all(home.path().join(".mozilla/firefox/Crash Reports")).unwrap();
    let stores = stores(home.path(), &["google-chrome"], &["certutil", "mkdir"]);
    let root = RootInfo::from_pem(authority(OffsetDateTime::now_utc()).root_pem()).unwrap();
    assert_eq!(stores.lacking(root.fingerprint).unwrap().len(), 2);
    let changes = stores.install(&root).unwrap();
    let results: Vec<_> = changes.iter().map(|one| (one.store.browser, one.changed, one.error.as_deref())).collect();
    assert_eq!(results, [(Browser::Chromium, true, None), (Browser::Firefox, false, Some("the store has a password"))]);
    assert_eq!(fs::metadata(home.path().join(".pki/nssdb")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(stores.lacking(root.fingerprint).unwrap().len(), 1);
    let removed = stores.remove(root.fingerprint).unwrap();
    assert_eq!(removed.iter().map(|one| one.changed).collect::<Vec<_>>(), [true, false]);
    assert!(stores.remove(root.fingerprint).unwrap().iter().all(|one| !one.changed && one.error.is_none()));
}
