//! Validators of other hands believe every answer of a signed zone.

use std::{fs, process::Command, sync::Arc};

use sallyport_zone::{
    Name, Record, RecordData, Settings, View, Zone,
    data::HttpPorts,
    dnssec::{Algorithm, KeyRole, KeyTimes, SigningKey, ZoneKeys},
};

use crate::support::{Client, Running, free_port, program, serve, wait_for};

const ZONE: &str = "$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\nweb A 192.0.2.4\n\
    www CNAME web\n*.wild A 192.0.2.5\n*.wild TXT wild\n*.alias CNAME web\na.b.c TXT deep\nsub NS ns.elsewhere.test.\n\
    safe NS ns.elsewhere.test.\n\
    safe DS 1 13 2 ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB\n\
    lost CNAME nothing\nhttps HTTPS 1 . alpn=h2\nmail MX 10 web\n_sip._tcp SRV 1 2 5060 web\n@ CAA 0 issue \"ca.test\"\n";

/// Names and types, and whether there is an answer.
const QUESTIONS: [(&str, &str, bool); 24] = [
    ("signed.test", "SOA", true),
    ("signed.test", "DNSKEY", true),
    ("signed.test", "CDS", true),
    ("signed.test", "CDNSKEY", true),
    ("signed.test", "CAA", true),
    ("signed.test", "TXT", false),
    ("web.signed.test", "A", true),
    ("web.signed.test", "MX", false),
    ("www.signed.test", "A", true),
    ("x.wild.signed.test", "A", true),
    ("x.y.wild.signed.test", "TXT", true),
    ("x.wild.signed.test", "MX", false),
    ("x.alias.signed.test", "A", true),
    ("c.signed.test", "A", false),
    ("b.c.signed.test", "A", false),
    ("sub.signed.test", "DS", false),
    ("safe.signed.test", "DS", true),
    ("nothing.signed.test", "A", false),
    ("https.signed.test", "HTTPS", true),
    ("_sip._tcp.signed.test", "SRV", true),
    ("edges.signed.test", "AAAA", true),
    ("edges.signed.test", "HTTPS", true),
    ("edges.signed.test", "A", false),
    ("_acme-challenge.web.signed.test", "TXT", true),
];

fn key(algorithm: Algorithm, secret: u8, role: KeyRole, times: KeyTimes) -> SigningKey {
    SigningKey::from_secret(algorithm, &[secret; 32], role, times).unwrap()
}

/// Sets of keys: one key, a pair, and a pair in a rollover, by both algorithms.
fn all_keys() -> Vec<ZoneKeys> {
    let always = KeyTimes::from(0);
    let apex = || -> Name { "signed.test".parse().unwrap() };
    let sets = [Algorithm::EcdsaP256Sha256, Algorithm::Ed25519].into_iter().flat_map(|algorithm| {
        let new = move |secret, role| key(algorithm, secret, role, always);
        [
            vec![new(1, KeyRole::Combined)],
            vec![new(1, KeyRole::KeySigning), new(2, KeyRole::ZoneSigning)],
            vec![new(1, KeyRole::Combined), new(2, KeyRole::Combined)],
        ]
    });
    sets.map(|keys| ZoneKeys::new(apex(), keys, 3_600, 0).unwrap()).collect()
}

fn zone(keys: Arc<ZoneKeys>) -> Zone {
    let apex: Name = "signed.test".parse().unwrap();
    let mut records = Zone::from_master_file(apex.clone(), ZONE, None).unwrap().records();
    let edges = RecordData::Edges("all".to_owned());
    records.push(Record { owner: apex.child("edges").unwrap(), ttl: 20, data: edges });
    Zone::build(apex, records, Some(keys)).unwrap()
}

fn view() -> Arc<View> {
    let mut view = View::default();
    let ports = HttpPorts { tcp: 443, udp: 8443 };
    view.set_group("all", 20, &["2001:db8::1".parse().unwrap()], Some(ports)).unwrap();
    let challenge = "_acme-challenge.web.signed.test".parse().unwrap();
    view.set_challenges(5, &[(challenge, vec!["token".to_owned()])]).unwrap();
    Arc::new(view)
}

/// The DS records as delv and unbound want them: without owner and class.
fn ds(keys: &ZoneKeys) -> Vec<String> {
    keys.ds_texts(1_000).iter().filter_map(|text| Some(text.split_once(" DS ")?.1.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn delv_validates_every_answer() {
    let Some(delv) = program("delv", "bind9-dnsutils") else { return };
    let folder = tempfile::tempdir().unwrap();
    for keys in all_keys() {
        let keys = Arc::new(keys);
        let (server, address) = serve([zone(keys.clone())], Settings::default());
        server.set_view(view());
        let anchors: String = ds(&keys)
            .iter()
            .filter_map(|ds| ds.rsplit_once(' '))
            .map(|(numbers, digest)| format!("signed.test. static-ds {numbers} \"{digest}\";"))
            .collect();
        let file = folder.path().join("anchors");
        fs::write(&file, format!("trust-anchors {{ {anchors} }};")).unwrap();
        for (name, rtype, has_answer) in QUESTIONS {
            let output = Command::new(&delv)
                .arg("-a")
                .arg(&file)
                .args(["+root=signed.test", "@127.0.0.1", "-p", &address.port().to_string(), name, rtype])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let expected = if has_answer { "; fully validated" } else { "; negative response, fully validated" };
            assert!(said.contains(expected), "{name} {rtype}: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unbound_validates_every_answer() {
    let Some(unbound) = program("unbound", "unbound") else { return };
    let keys = Arc::new(all_keys().remove(1));
    let (server, address) = serve([zone(keys.clone())], Settings::default());
    server.set_view(view());
    let folder = tempfile::tempdir().unwrap();
    let (port, path) = (free_port(), folder.path().display());
    let anchors: String = ds(&keys).iter().map(|ds| format!("  trust-anchor: \"signed.test. DS {ds}\"\n")).collect();
    let config = format!(
        "server:\n  interface: 127.0.0.1@{port}\n  directory: {path}\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n\
         \x20 use-syslog: no\n  do-not-query-localhost: no\n  qname-minimisation-strict: yes\n  local-zone: test. nodefault\n\
         \x20 harden-below-nxdomain: yes\n  val-log-level: 2\n  module-config: \"validator iterator\"\n{anchors}\
         stub-zone:\n  name: signed.test\n  stub-addr: 127.0.0.1@{}\nremote-control:\n  control-enable: no\n",
        address.port()
    );
    let file = folder.path().join("unbound.conf");
    fs::write(&file, config).unwrap();
    let log = folder.path().join("log");
    let _unbound = Running::start(Command::new(unbound).arg("-d").arg("-c").arg(&file), &log);
    let mut client = Client::new(([127, 0, 0, 1], port).into());
    let first = recursive("signed.test", "SOA");
    wait_for("unbound", &log, || client.send(&first).is_ok_and(|answer| !answer.answers.is_empty()));
    for (name, rtype, has_answer) in QUESTIONS {
        let answer = client.send(&recursive(name, rtype)).unwrap();
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(answer.metadata.authentic_data, "{name} {rtype}: {answer}\n{said}");
        assert_eq!(!answer.answers.is_empty(), has_answer, "{name} {rtype}: {answer}");
    }
}

/// A query to a resolver that validates.
fn recursive(name: &str, rtype: &str) -> Vec<u8> {
    let rtype: sallyport_zone::RecordType = rtype.parse().unwrap();
    let mut query = crate::support::query(rtype.0, name, rtype.0, true);
    query[2] |= 1;
    query
}
