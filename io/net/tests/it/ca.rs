//! Files of the certificate authority.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use sallyport_net::{CA_CERTIFICATE_FILE, CA_KEY_FILE, CaError, LocalCa, RootInfo};
use sallyport_pki::{Authority, KeyPair};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

fn open(dir: &Path) -> Result<LocalCa, CaError> {
    LocalCa::open_or_create(dir, "localhost")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn the_authority_is_made_once_and_only_its_owner_can_read_the_key() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("data");
    let made = open(&dir).unwrap();
    assert_eq!(mode(&dir.join(CA_KEY_FILE)), 0o600);
    assert_eq!(mode(&dir.join(CA_CERTIFICATE_FILE)), 0o644);
    assert_eq!(made.pem_path(), dir.join(CA_CERTIFICATE_FILE));
    assert!(made.root().subject.starts_with("CN=Sallyport root for localhost "), "{}", made.root().subject);
    let before = contents(&dir);
    assert_eq!(before.len(), 2, "nothing temporary stays");
    let opened = open(&dir).unwrap();
    assert_eq!(opened.fingerprint(), made.fingerprint());
    assert_eq!(opened.root_pem(), made.root_pem());
    assert_eq!(contents(&dir), before);
    let read = RootInfo::from_pem(&fs::read_to_string(made.pem_path()).unwrap()).unwrap();
    assert_eq!(read.fingerprint, made.fingerprint());
    assert_eq!(read.to_pem(), made.root_pem());
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).unwrap();
    for bad in [0o644, 0o640, 0o604, 0o660, 0o601] {
        fs::set_permissions(dir.path().join(CA_KEY_FILE), Permissions::from_mode(bad)).unwrap();
        let error = open(dir.path()).unwrap_err();
        assert!(matches!(error, CaError::KeyOpen { mode, .. } if mode == bad), "{error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    fs::set_permissions(dir.path().join(CA_KEY_FILE), Permissions::from_mode(0o400)).unwrap();
    open(dir.path()).unwrap();
}

#[test]
fn damaged_files_are_named_and_left_as_they_are() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).unwrap();
    let (certificate, key) = (dir.path().join(CA_CERTIFICATE_FILE), dir.path().join(CA_KEY_FILE));
    let (good_certificate, good_key) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    let refused = |what: &str, named: &Path| {
        let before = contents(dir.path());
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(named.to_str().unwrap()), "{what}: {error}");
        assert!(!error.contains('\n'), "{what}: {error}");
        assert_eq!(contents(dir.path()), before, "{what}");
        error
    };
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("garbage", vec![0xff; 300]),
        ("cut", good_certificate[..good_certificate.len() / 2].to_vec()),
        ("the key", good_key.clone()),
        ("too long", vec![b'-'; 70_000]),
        (
            "flipped",
            good_certificate.iter().enumerate().map(|(at, byte)| if at == 200 { byte ^ 1 } else { *byte }).collect(),
        ),
    ] {
        fs::write(&certificate, bytes).unwrap();
        refused(what, &certificate);
    }
    fs::write(&certificate, &good_certificate).unwrap();
    for (what, bytes) in [("empty", Vec::new()), ("cut", good_key[..good_key.len() / 2].to_vec())] {
        fs::write(&key, bytes).unwrap();
        refused(what, &key);
    }
    let other = TempDir::new().unwrap();
    open(other.path()).unwrap();
    fs::write(&key, fs::read(other.path().join(CA_KEY_FILE)).unwrap()).unwrap();
    assert!(refused("another's", &key).contains("does not belong to the certificate"));
    fs::remove_file(&key).unwrap();
    assert!(refused("gone", &key).contains("is missing"));
    fs::write(&key, &good_key).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    open(dir.path()).unwrap();
}

#[test]
fn a_root_that_ended_is_refused_and_one_that_has_not_begun_is_not() {
    let dir = TempDir::new().unwrap();
    let write = |made: OffsetDateTime| {
        let key = KeyPair::generate_for(&sallyport_pki::PKCS_ECDSA_P256_SHA256).unwrap();
        let authority = Authority::create("Sallyport root", "localhost", key, made, [1; 16]).unwrap();
        fs::write(dir.path().join(CA_CERTIFICATE_FILE), authority.root_pem()).unwrap();
        fs::write(dir.path().join(CA_KEY_FILE), authority.key_pem()).unwrap();
        fs::set_permissions(dir.path().join(CA_KEY_FILE), Permissions::from_mode(0o600)).unwrap();
    };
    write(OffsetDateTime::now_utc() - Duration::days(4_000));
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, CaError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("ended on"), "{error}");
    write(OffsetDateTime::now_utc() + Duration::days(400));
    open(dir.path()).unwrap();
}

#[test]
fn a_root_is_for_one_domain() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).unwrap();
    let error = LocalCa::open_or_create(dir.path(), "door.example").unwrap_err();
    assert!(matches!(error, CaError::OtherDomain { .. }), "{error}");
    assert!(LocalCa::open_or_create(dir.path(), "inner.localhost").is_ok());
    let error = LocalCa::open_or_create(&dir.path().join("new"), "not a domain").unwrap_err();
    assert!(matches!(error, CaError::Create(_)), "{error}");
    assert!(!dir.path().join("new").exists());
}

#[test]
fn a_creation_that_was_interrupted_is_completed() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).unwrap();
    let key = fs::read(dir.path().join(CA_KEY_FILE)).unwrap();
    fs::remove_file(dir.path().join(CA_CERTIFICATE_FILE)).unwrap();
    fs::write(dir.path().join(".ca.pem.new"), "half a certificate").unwrap();
    open(dir.path()).unwrap();
    assert_eq!(fs::read(dir.path().join(CA_KEY_FILE)).unwrap(), key);
    assert_eq!(contents(dir.path()).len(), 2);
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open(&file).unwrap_err().to_string();
    assert!(error.contains(file.to_str().unwrap()), "{error}");
}

#[test]
#[ignore = "the other half of the test below"]
fn hidden_child() {
    let dir = std::env::var("SALLYPORT_TEST_DIR").unwrap();
    println!("error {}", open(Path::new(&dir)).unwrap_err());
}

/// A process that may not write a single byte simulates a full disk.
#[test]
fn a_full_disk_leaves_nothing_half() {
    let dir = TempDir::new().unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact ca::hidden_child --ignored --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env("SALLYPORT_TEST_DIR", dir.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("error cannot write ") && stdout.contains(CA_KEY_FILE), "{stdout}");
    assert!(contents(dir.path()).is_empty());
    open(dir.path()).unwrap();
}
