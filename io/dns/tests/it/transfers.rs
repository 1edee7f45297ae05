//! Secondaries of other hands take our zones and serve them.

use std::{fs, path::Path, process::Command, sync::Arc};

use sallyport_dns::notify;
use sallyport_zone::{
    Name, Settings, TsigHash, TsigKeys, Zone, Zones,
    dnssec::{Algorithm, KeyRole, KeyTimes, SigningKey, ZoneKeys},
    transfer::catalog_zone,
};

use crate::support::{Client, Running, free_port, program, serve, wait_for};

/// In base64, as configurations have it.
const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=";
const SECRET_BYTES: &[u8] = b"secret-secret-secret-secret-1234";
const A: u16 = 1;
const SOA: u16 = 6;

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.tsig_keys.insert(key_name(), TsigHash::Sha256, SECRET_BYTES).unwrap();
    settings
}

fn key_name() -> Name {
    "secondary".parse().unwrap()
}

fn zone(apex: &str, serial: u32, keys: Option<Arc<ZoneKeys>>) -> Zone {
    let hosts: String = (0..500).map(|n| format!("h{n} A 192.0.2.{}\n", n % 250)).collect();
    let text = format!(
        "$TTL 300\n@ SOA ns host {serial} 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\nversion A 10.0.0.{serial}\n\
         *.wild TXT wild\na.b.c TXT deep\nsub NS ns.sub\nns.sub A 192.0.2.53\nsafe NS ns.sub\n\
         safe DS 1 13 2 ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB\n{hosts}"
    );
    Zone::from_master_file(apex.parse().unwrap(), &text, keys).unwrap().with_transfer_keys(vec![key_name()])
}

fn zone_keys(apex: &str) -> Arc<ZoneKeys> {
    let new = |secret, role| {
        SigningKey::from_secret(Algorithm::EcdsaP256Sha256, &[secret; 32], role, KeyTimes::from(0)).unwrap()
    };
    let keys = vec![new(1, KeyRole::KeySigning), new(2, KeyRole::ZoneSigning)];
    Arc::new(ZoneKeys::new(apex.parse().unwrap(), keys, 3_600, 0).unwrap())
}

fn serial(client: &mut Client, apex: &str) -> Option<String> {
    let answer = client.send(&crate::support::query(1, apex, SOA, false)).ok()?;
    answer.answers.first().map(|record| format!("{record}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn knot_follows_a_catalog_and_notices() {
    let Some(knotd) = program("knotd", "knot") else { return };
    let first = zone("one.test", 1, None);
    let catalog = |serial, members: &[&str]| {
        let members: Vec<Name> = members.iter().map(|member| member.parse().unwrap()).collect();
        let catalog = catalog_zone("catalog.test".parse().unwrap(), serial, &members).unwrap();
        catalog.with_transfer_keys(vec![key_name()])
    };
    let (server, address) = serve([first, catalog(1, &["one.test"])], settings());
    let folder = tempfile::tempdir().unwrap();
    let (port, path) = (free_port(), folder.path().display());
    let config = format!(
        "server:\n  rundir: {path}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {path}\n\
         key:\n  - id: secondary\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
         remote:\n  - id: primary\n    address: 127.0.0.1@{}\n    key: secondary\n\
         acl:\n  - id: notices\n    address: 127.0.0.1\n    key: secondary\n    action: notify\n\
         template:\n  - id: default\n    storage: {path}\n\
         \x20 - id: member\n    storage: {path}\n    master: primary\n    acl: notices\n\
         zone:\n  - domain: catalog.test\n    master: primary\n    acl: notices\n\
         \x20   catalog-role: interpret\n    catalog-template: member\n",
        address.port()
    );
    let file = folder.path().join("knot.conf");
    fs::write(&file, config).unwrap();
    let log = folder.path().join("knot.log");
    let _knot = Running::start(Command::new(knotd).arg("-c").arg(&file), &log);
    let secondary = ([127, 0, 0, 1], port).into();
    let mut client = Client::new(secondary);
    wait_for("the zone of the catalog", &log, || serial(&mut client, "one.test").is_some());
    assert_eq!(client.query("h77.one.test", A, false).answers.len(), 1);

    // A change, a notice, and the changes alone.
    let second = zone("one.test", 2, None).with_history_of(server.zones().get(&"one.test".parse().unwrap()).unwrap());
    let two = zone("two.test", 7, None);
    let zones = [Arc::new(second), Arc::new(two), Arc::new(catalog(2, &["one.test", "two.test"]))];
    server.set_zones(Arc::new(Zones::new(zones).unwrap()));
    let keys = settings().tsig_keys;
    for apex in ["one.test", "catalog.test"] {
        let zone = server.zones().get(&apex.parse().unwrap()).unwrap().clone();
        notify(&zone, secondary, &keys, Some(&key_name())).await.unwrap();
    }
    wait_for("the change", &log, || serial(&mut client, "one.test").is_some_and(|soa| soa.contains(" 2 3600 ")));
    assert!(format!("{}", client.query("version.one.test", A, false).answers[0]).ends_with("10.0.0.2"));
    wait_for("the new zone", &log, || serial(&mut client, "two.test").is_some());
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("IXFR, incoming"), "{said}");
    assert!(server.counters().transfers() >= 4);

    let zone = server.zones().get(&"one.test".parse().unwrap()).unwrap().clone();
    let error = notify(&zone, secondary, &keys, None).await.unwrap_err().to_string();
    assert!(error.contains("refuses notices with code"), "{error}");
    let no_key = TsigKeys::default();
    assert!(notify(&zone, secondary, &no_key, Some(&key_name())).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn bind_follows_a_catalog_of_signed_zones() {
    let Some(named) = program("named", "bind9") else { return };
    let member = zone("one.test", 1, Some(zone_keys("one.test")));
    let catalog = catalog_zone("catalog.test".parse().unwrap(), 1, &["one.test".parse().unwrap()]).unwrap();
    let (server, address) = serve([member, catalog.with_transfer_keys(vec![key_name()])], settings());
    let folder = tempfile::tempdir().unwrap();
    let (port, path, ours) = (free_port(), folder.path().display(), address.port());
    let config = format!(
        "options {{ directory \"{path}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
         pid-file \"{path}/pid\"; session-keyfile \"{path}/session.key\"; recursion no; dnssec-validation no;\n\
         allow-notify {{ 127.0.0.1; }}; notify no;\n\
         catalog-zones {{ zone \"catalog.test\" default-primaries {{ 127.0.0.1 port {ours} key secondary; }}\n\
         in-memory no zone-directory \"{path}\" min-update-interval 1; }}; }};\n\
         key secondary {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\ncontrols {{ }};\n\
         zone \"catalog.test\" {{ type secondary; file \"catalog.db\";\n\
         primaries {{ 127.0.0.1 port {ours} key secondary; }}; }};\n"
    );
    let file = folder.path().join("named.conf");
    fs::write(&file, config).unwrap();
    let log = folder.path().join("log");
    let _bind = Running::start(Command::new(named).args(["-g", "-n", "1", "-c"]).arg(&file), &log);
    let secondary = ([127, 0, 0, 1], port).into();
    let mut client = Client::new(secondary);
    wait_for("BIND's zone", &log, || serial(&mut client, "one.test").is_some());
    // From BIND, denial is by the chain, with signatures.
    let denial = client.query("none.one.test", A, true);
    assert_eq!(u16::from(denial.metadata.response_code), 3);
    assert!(denial.authorities.len() >= 4);

    let changed = zone("one.test", 2, Some(zone_keys("one.test")));
    let kept = server.zones().get(&"catalog.test".parse().unwrap()).unwrap().clone();
    server.set_zones(Arc::new(Zones::new([Arc::new(changed), kept]).unwrap()));
    let zone = server.zones().get(&"one.test".parse().unwrap()).unwrap().clone();
    notify(&zone, secondary, &settings().tsig_keys, Some(&key_name())).await.unwrap();
    wait_for("the change", &log, || serial(&mut client, "one.test").is_some_and(|soa| soa.contains(" 2 3600 ")));
}

#[tokio::test(flavor = "multi_thread")]
async fn nsd_serves_a_signed_zone_that_validates() {
    let Some(nsd) = program("nsd", "nsd") else { return };
    let keys = zone_keys("signed.test");
    let (_server, address) = serve([zone("signed.test", 5, Some(keys))], settings());
    let folder = tempfile::tempdir().unwrap();
    let (port, path) = (free_port(), folder.path().display());
    let config = format!(
        "server:\n  ip-address: 127.0.0.1@{port}\n  zonesdir: {path}\n  username: \"\"\n  pidfile: {path}/pid\n\
         \x20 database: \"\"\n  xfrdfile: {path}/xfrd\n  zonelistfile: {path}/list\n  server-count: 1\n\
         remote-control:\n  control-enable: no\n\
         key:\n  name: secondary\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n\
         zone:\n  name: signed.test\n  zonefile: signed.zone\n  request-xfr: AXFR 127.0.0.1@{} secondary\n\
         \x20 allow-notify: 127.0.0.1 NOKEY\n",
        address.port()
    );
    let file = folder.path().join("nsd.conf");
    fs::write(&file, config).unwrap();
    let log = folder.path().join("log");
    let _nsd = Running::start(Command::new(nsd).arg("-d").arg("-c").arg(&file), &log);
    let mut client = Client::new(([127, 0, 0, 1], port).into());
    wait_for("NSD's zone", &log, || serial(&mut client, "signed.test").is_some());
    // From NSD, denial is by the chain.
    let denial = client.query("none.signed.test", A, true);
    assert_eq!(u16::from(denial.metadata.response_code), 3);
    assert!(denial.authorities.len() >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transferred_zone_verifies() {
    let (Some(kdig), Some(verify)) = (program("kdig", "knot-dnsutils"), program("ldns-verify-zone", "ldnsutils"))
    else {
        return;
    };
    let (_server, address) = serve([zone("signed.test", 5, Some(zone_keys("signed.test")))], settings());
    let folder = tempfile::tempdir().unwrap();
    let transfer = |key: Option<&str>| {
        let mut command = Command::new(&kdig);
        if let Some(key) = key {
            command.args(["-y", key]);
        }
        let port = address.port().to_string();
        let output = command.args(["@127.0.0.1", "-p", &port, "signed.test", "AXFR"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!transfer(None).contains("h77.signed.test."), "without a key nothing is transferred");
    let key = format!("hmac-sha256:secondary:{SECRET}");
    let text = transfer(Some(&key));
    let records: String = text
        .lines()
        .filter(|line| !line.starts_with(";;") && !line.contains("\tTSIG\t"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(records.contains("h77.signed.test."), "{text}");
    let file = folder.path().join("signed.zone");
    fs::write(&file, without_last_soa(&records)).unwrap();
    assert_verifies(&verify, &file);
}

fn without_last_soa(records: &str) -> String {
    let last = records.trim_end().rfind('\n').unwrap_or(0);
    records[..=last].to_owned()
}

fn assert_verifies(verify: &Path, file: &Path) {
    let output = Command::new(verify).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
